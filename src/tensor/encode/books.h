// The codebooks of IQ1, IQ2 and IQ3 (quant_grids.h), arranged for an exhaustive search.
//
// An entry packs, for each weight of a group, an index into the type's list of values
// (quant_grids.h). The entry's low half has the indices for the first half of the weights, its high
// half those for the second half. The score of an entry (nearest.h) is the sum of the scores of its
// halves. So for each low half, the search finds the best of the high halves that occur with it,
// with one comparison per entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::encode {

struct Book {
    // The entries with the same low half: their high halves are high[begin] to high[begin + count -
    // 1]. `count` is a multiple of 4; the last high half is repeated as padding.
    struct List {
        uint16_t low, begin, count;
    };
    std::vector<List> lists;  // sorted by count, so that loops of equal length are adjacent
    std::vector<uint8_t> high;
    std::vector<uint16_t> index;  // for each entry, its position in the codebook of the file format
};

// half_bits: number of bits in half an entry, at most 8.
Book MakeBook(std::span<const uint16_t> grid, int half_bits);

const Book& Iq1Book();
const Book& Iq2XxsBook();
const Book& Iq2XsBook();
const Book& Iq2SBook();
const Book& Iq3XxsBook();
const Book& Iq3SBook();

}  // namespace weft::encode
