"""Published tasks whose tools fail, in several frameworks: which effects are there twice, lost or wrong."""
