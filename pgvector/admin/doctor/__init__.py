"""The checks of `doctor`: each module checks one part and changes nothing."""
