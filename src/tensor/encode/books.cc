#include "tensor/encode/books.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/quant_grids.h"

namespace weft::encode {

Book MakeBook(std::span<const uint16_t> grid, int half_bits) {
    WEFT_CHECK(!grid.empty() && half_bits > 0 && half_bits <= 8);
    const size_t halves = size_t{1} << half_bits;
    Book book;
    book.index.assign(halves * halves, 0);
    std::vector<std::vector<uint8_t>> by_low(halves);
    for (size_t i = 0; i < grid.size(); ++i) {
        WEFT_CHECK(grid[i] < halves * halves);
        book.index[grid[i]] = static_cast<uint16_t>(i);
        by_low[grid[i] % halves].push_back(static_cast<uint8_t>(grid[i] / halves));
    }
    for (size_t low = 0; low < halves; ++low) {
        std::vector<uint8_t>& high = by_low[low];
        if (high.empty()) continue;
        while (high.size() % 4 != 0) high.push_back(high.back());
        book.lists.push_back({static_cast<uint16_t>(low), static_cast<uint16_t>(book.high.size()),
                              static_cast<uint16_t>(high.size())});
        book.high.insert(book.high.end(), high.begin(), high.end());
    }
    std::ranges::stable_sort(book.lists, {}, &Book::List::count);
    return book;
}

const Book& Iq1Book() {
    static const Book book = MakeBook(kIq1Grid, 8);
    return book;
}

const Book& Iq2XxsBook() {
    static const Book book = MakeBook(kIq2XxsGrid, 8);
    return book;
}

const Book& Iq2XsBook() {
    static const Book book = MakeBook(kIq2XsGrid, 8);
    return book;
}

const Book& Iq2SBook() {
    static const Book book = MakeBook(kIq2SGrid, 8);
    return book;
}

const Book& Iq3XxsBook() {
    static const Book book = MakeBook(kIq3XxsGrid, 6);
    return book;
}

const Book& Iq3SBook() {
    static const Book book = MakeBook(kIq3SGrid, 6);
    return book;
}

}  // namespace weft::encode
