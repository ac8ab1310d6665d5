// The softmax of a whole row, from the concatenated stats (softmax_stats.comp) of all ranks.
// `logits`: their sum, if each rank has four stats.
struct Softmax {
    float most, sum, chosen, logits;
};
// The terms of a loss (tensor/loss_terms.h); ranks, and stats of each rank.
struct Terms {
    uint ranks, each;
    float smoothing, share, z_loss;
};
Softmax SoftmaxOf(Floats stats, uint row, Terms terms) {
    const uint begin = row * terms.each * terms.ranks;
    Softmax all = Softmax(stats.at[begin], 0, 0, 0);
    for (uint r = 1; r < terms.ranks; ++r) {
        all.most = max(all.most, stats.at[begin + terms.each * r]);
    }
    for (uint r = 0; r < terms.ranks; ++r) {
        const uint at = begin + terms.each * r;
        all.sum = fma(stats.at[at + 1], exp(stats.at[at] - all.most), all.sum);
        all.chosen += stats.at[at + 2];
        if (terms.each > 3) all.logits += stats.at[at + 3];
    }
    return all;
}
