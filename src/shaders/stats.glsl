// The softmax of a whole row, from the concatenated stats (softmax_stats.comp) of all ranks.
struct Softmax {
    float most, sum, chosen;
};
Softmax SoftmaxOf(Floats stats, uint row, uint ranks) {
    const uint begin = row * 3 * ranks;
    Softmax all = Softmax(stats.at[begin], 0, 0);
    for (uint r = 1; r < ranks; ++r) all.most = max(all.most, stats.at[begin + 3 * r]);
    for (uint r = 0; r < ranks; ++r) {
        const uint at = begin + 3 * r;
        all.sum = fma(stats.at[at + 1], exp(stats.at[at] - all.most), all.sum);
        all.chosen += stats.at[at + 2];
    }
    return all;
}
