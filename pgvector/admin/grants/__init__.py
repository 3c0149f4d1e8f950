"""The commands about the themes that logins may see with row security."""
