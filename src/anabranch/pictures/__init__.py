"""Pictures of flows and plans: where everything lies, and that as SVG."""
