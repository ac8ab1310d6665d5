// The code books of IQ1, IQ2 and IQ3 (quant_grids.h), sorted for a search through all of a book.
//
// An entry is its values' places in the type's list, as quant_grids.h packs them. Its low half
// belongs to the first half of the weights of a group, its high half to the others. The score of an
// entry is the sum of those of its halves: for each low half the best of its high halves is looked
// for, which takes one comparison an entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::encode {

struct Book {
    // The entries with this low half: high[begin], ... `count` of them, a multiple of 4 (the last
    // one is there again as often as that takes).
    struct List {
        uint16_t low, begin, count;
    };
    std::vector<List> lists;  // by their count, so that loops of one length follow one another
    std::vector<uint8_t> high;
    std::vector<uint16_t> index;  // of an entry: where it stands in the file's book
};

// half_bits: bits of half an entry, at most 8.
Book MakeBook(std::span<const uint16_t> grid, int half_bits);

const Book& Iq1Book();
const Book& Iq2XxsBook();
const Book& Iq2XsBook();
const Book& Iq2SBook();
const Book& Iq3XxsBook();
const Book& Iq3SBook();

}  // namespace weft::encode
