"""What maintainers run: pictures for README.md, advisories on locked packages. The product never imports it."""
