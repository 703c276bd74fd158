"""What several test files share: problems and tables with brute force beside them, stand-ins for devices and disks."""
