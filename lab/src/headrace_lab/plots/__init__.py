"""Plain SVG pictures: curves over an axis, and bars side by side."""
