"""A finished run as a folder of pages: hear every take, see what the numbers say, check and publish all of it."""
