// Unpacks pages of Parquet files. libsnappy, libzstd and liblz4 are optional when Weft is built.
#pragma once

#include <span>
#include <string_view>

#include "train/data/record_lines.h"

namespace weft::train::parquet {

// Fills `out`, whose size the page states. column: for messages. Throws ColumnFault: kUnsupported
// (the codec), kCorrupt (damaged, or of another size).
void Unpack(int codec, ColumnBytes packed, std::span<std::byte> out, std::string_view column);

}  // namespace weft::train::parquet
