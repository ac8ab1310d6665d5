// Divides products among parts, for several groups of rows that each have their own matrix.
#pragma once

#include <algorithm>

#include "kernels/args.h"

namespace weft::kernels {

// Matrices are divided at multiples of `width`. Reading a strip of this width takes about as long
// as multiplying it by `cost` rows.
struct Strips {
    int64_t width = 0, cost = 0;
};

// Divides the strips of all groups' matrices among parts by cost, and calls with(group, range) for
// each range of a matrix that belongs to this part. size: length of each matrix in the divided
// dimension. count(group): number of rows that are multiplied by the group's matrix.
template <typename Count, typename With>
void ShareStrips(Strips of, int64_t groups, int64_t size, const Count& count, int part, int parts,
                 const With& with) {
    const int64_t strips = (size + of.width - 1) / of.width;
    const auto cost = [&](int64_t g) { return count(g) == 0 ? 0 : count(g) + of.cost; };
    int64_t total = 0;
    for (int64_t g = 0; g < groups; ++g) total += strips * cost(g);
    const int64_t begin = total * part / parts, end = total * (part + 1) / parts;
    int64_t at = 0;  // cost of all earlier groups
    for (int64_t g = 0; g < groups && at < end; at += strips * cost(g), ++g) {
        if (cost(g) == 0) continue;
        // A strip belongs to the part in which its cost begins.
        const auto first = [&](int64_t unit) {
            return std::clamp<int64_t>((unit - at + cost(g) - 1) / cost(g), 0, strips);
        };
        const int64_t from = begin <= at ? 0 : first(begin);
        const Range range{from * of.width, std::min(first(end) * of.width, size)};
        if (range.begin < range.end) with(g, range);
    }
}

}  // namespace weft::kernels
