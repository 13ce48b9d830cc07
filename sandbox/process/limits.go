package process

// minMemory is the least that a box may have, in bytes: pid 1 needs about 10 MiB.
const minMemory = 32 << 20

// maxCPU processors are more than any host has.
const maxCPU = 32768

// minInitFiles is what pid 1 itself needs to serve many commands at once.
const minInitFiles = 4096
