"""The functions of mx.nd that are not operators, and the namespace made of those that are."""
