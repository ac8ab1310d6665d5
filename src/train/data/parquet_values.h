// Decodes the values and levels of a page of a Parquet file, one at a time.
//
// Encodings: https://github.com/apache/parquet-format/blob/master/Encodings.md. A decoder keeps a
// position and no values, so a page that states many values needs no memory for them.
#pragma once

#include <cstdint>
#include <vector>

#include "train/data/parquet_footer.h"

namespace weft::train::parquet {

// Runs of equal numbers and groups of 8 packed ones (the encoding RLE).
class Runs {
  public:
    Runs() = default;
    Runs(ColumnBytes bytes, int width) : bytes_(bytes), width_(width) {}
    uint64_t Next();

  private:
    ColumnBytes bytes_;
    int width_ = 0;
    uint64_t at_ = 0, left_ = 0, value_ = 0, bit_ = 0;  // bit_: within bytes_
    bool packed_ = false;
};

// DELTA_BINARY_PACKED.
class Deltas {
  public:
    Deltas() = default;
    // most: the number of values of the page, at least.
    Deltas(ColumnBytes bytes, uint64_t most);
    int64_t Next();
    // The bytes after all numbers, which are read for that.
    ColumnBytes Rest() const;

  private:
    void BeginPart();

    ColumnBytes bytes_, widths_;
    uint64_t at_ = 0, total_ = 0, given_ = 0;
    uint64_t parts_ = 0, of_part_ = 0, part_ = 0, left_ = 0;  // left_: of the part
    uint64_t bit_ = 0, end_ = 0;                              // end_: of the part's bytes
    int width_ = 0;
    uint64_t least_ = 0, last_ = 0;
};

class Dictionary {
  public:
    Dictionary() = default;
    Dictionary(std::vector<std::byte> bytes, uint64_t count, const LeafType& type);
    ColumnBytes At(uint64_t index) const;
    bool empty() const { return count_ == 0; }

  private:
    std::vector<std::byte> bytes_;
    std::vector<uint32_t> begins_;  // of texts
    uint64_t count_ = 0;
    int width_ = 0;
};

// The values of a page that are not null.
class Values {
  public:
    Values() = default;
    // most: the number of values with nulls. Throws if the type does not have this encoding.
    Values(const LeafType& type, int encoding, ColumnBytes bytes, uint64_t most,
           const Dictionary& dictionary);
    // The next one; until the next call.
    ColumnBytes Next();

  private:
    ColumnBytes Take(uint64_t size);
    ColumnBytes NextDelta();

    const LeafType* type_ = nullptr;
    const Dictionary* dictionary_ = nullptr;
    int encoding_ = 0;
    ColumnBytes bytes_;
    uint64_t at_ = 0;  // byte; in packed Booleans: bit; in split streams: value
    Runs runs_;
    Deltas lengths_, prefixes_;
    std::vector<std::byte> value_;
};

}  // namespace weft::train::parquet
