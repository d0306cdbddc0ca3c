"""The book in other forms: PDF, EPUB, a zip without a network, versions side by side, a release."""
