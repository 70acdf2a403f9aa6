# A thread that one communicator has told is nobody for the others.
s/if \(word & TOLD\)\n        return true;/if (word \& TOLD)\n        return false;/
