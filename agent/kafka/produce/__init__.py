"""The produce path: admission, buffer and flush planner are pure; the driver does the I/O."""
