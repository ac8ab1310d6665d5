// Scratch memory of delta_grad: gradients of states, the states before kEvery rows, and each block
// of columns' addends to the gradients of these rows. In order, all float32:
//     states     [2 + kEvery, heads, blocks, kDims, kColumns]: two gradients, then states
//     queries    [kEvery, heads, blocks, kDims]: of q; then as many of k
//     fades      [kEvery, heads, blocks, kDims], or, one per head, [kEvery, heads, blocks]
//     strengths  [kEvery, heads, blocks]; then as many of skip
// (Rule::SpaceBytes of recurrent_grad.cc)
const uint kColumns = 16;
uint BlocksOf(uint cols) {
    return (cols + kColumns - 1) / kColumns;
}
// The number of a row's block.
uint PartAt(uint row, uint head, uint block, uint heads, uint cols) {
    return (row * heads + head) * BlocksOf(cols) + block;
}
// Addresses of the lists; blocks: the blocks of all heads.
uint64_t QueriesAt(uint64_t room, uint blocks) {
    return room + 4 * uint64_t(2 + kEvery) * blocks * kDims * kColumns;
}
uint64_t KeysAt(uint64_t room, uint blocks) {
    return QueriesAt(room, blocks) + 4 * kEvery * blocks * kDims;
}
uint64_t FadesAt(uint64_t room, uint blocks) {
    return KeysAt(room, blocks) + 4 * kEvery * blocks * kDims;
}
uint64_t StrengthsAt(uint64_t room, uint blocks) {
    return FadesAt(room, blocks) + 4 * kEvery * blocks * (kByChannel ? kDims : 1);
}
uint64_t SkipsAt(uint64_t room, uint blocks) {
    return StrengthsAt(room, blocks) + 4 * kEvery * blocks;
}
