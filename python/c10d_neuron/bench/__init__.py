"""`c10d-neuron bench`: measures operations of one backend beside another, interleaved in the same processes."""
