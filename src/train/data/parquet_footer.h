// The metadata of Parquet files: schema, row groups, page headers.
//
// Format: https://github.com/apache/parquet-format (parquet.thrift, LogicalTypes.md), in Thrift's
// compact protocol. Lists of all writers, also lists of two levels, are one kind of node. Errors
// are thrown as ColumnFault, those of File as Error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "train/data/record_lines.h"

namespace weft::train::parquet {

enum class Physical : uint8_t { kBool, kInt32, kInt64, kInt96, kFloat, kDouble, kText, kFixed };

// The type of a leaf, which is a column of the file.
struct LeafType {
    std::string name;  // with those of its parents: "messages.content"
    Physical physical = Physical::kBool;
    int bytes = 0;  // of a value; 0: a text
    Scalar scalar;
    int most_definition = 0, most_repetition = 0;
};

// A value of a record. Its definition level is `definition` or more if it is not null.
struct Node {
    enum Kind { kLeaf, kStruct, kList };
    Kind kind = kLeaf;
    std::string key;  // RecordLines::KeyOf
    int definition = 0;
    // kList: the levels of an element.
    int element_definition = 0, element_repetition = 0;
    size_t first_leaf = 0, end_leaf = 0;
    std::vector<Node> children;  // kList: the element
};

struct Chunk {  // of a leaf in a row group
    uint64_t begin = 0, bytes = 0, values = 0;
    int codec = 0;
};

struct RowGroup {
    uint64_t records = 0;
    std::vector<Chunk> chunks;  // by leaf
};

struct Footer {
    Node record;
    std::vector<LeafType> leaves;
    std::vector<RowGroup> groups;
};
Footer ReadFooter(const File& file);

struct PageHeader {
    enum Kind { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };
    int kind = -1;
    uint64_t header_bytes = 0, packed_bytes = 0, bytes = 0;
    uint64_t values = 0;
    int encoding = 0;
    // kData: encodings of the levels. kDataV2: bytes of the levels.
    int definition_encoding = 3, repetition_encoding = 3;
    uint64_t definition_bytes = 0, repetition_bytes = 0;
    bool is_packed = true;
};
// The header at the begin of `bytes`; empty if it does not end there.
std::optional<PageHeader> ParsePageHeader(ColumnBytes bytes);

// Reads bytes of a file. Throws.
void ReadInto(const File& file, uint64_t at, std::vector<std::byte>& bytes);

// A LEB128 number at bytes[at], which moves behind it.
uint64_t Varint(ColumnBytes bytes, uint64_t& at);
inline int64_t UnZigzag(uint64_t number) {
    return static_cast<int64_t>(number >> 1) ^ -static_cast<int64_t>(number & 1);
}

}  // namespace weft::train::parquet
