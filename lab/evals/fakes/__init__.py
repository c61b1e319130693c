"""What tests, evals and benchmarks run against: models that follow a script, behind servers as strict as the real APIs.

script          what a scripted model answers, and how it fails
model_api       serve the scripted model on loopback; `anthropic_api` and `openai_api` check requests like the real APIs
http_server     a web server that sends prepared answers
postgresql      a throw-away PostgreSQL
"""
