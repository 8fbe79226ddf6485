"""The application: training image segmentation from cheap labels instead of full masks."""
