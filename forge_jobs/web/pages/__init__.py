"""The pages of the dashboard, as HTML from templates."""
