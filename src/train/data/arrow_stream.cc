#include "train/data/arrow_stream.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tensor/half.h"

namespace weft::train {
namespace arrow {
namespace {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::span<const std::byte>;
using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 16;
constexpr uint64_t kMostMetadata = 64 << 20, kMostValues = 1 << 22;
constexpr int64_t kMostRecords = 1 << 24, kMostLength = 1 << 28;
constexpr size_t kMostName = 4096, kMostFields = 4096;
constexpr size_t kPieceBytes = 1 << 20;
constexpr std::string_view kFileMagic{"ARROW1\0\0", 8};

// A fault of the file. ReadArrow adds the name of the file.
struct Bad {
    ErrorCode code = ErrorCode::kCorrupt;
    std::string what;
};
[[noreturn]] void Fail(std::string what, ErrorCode code = ErrorCode::kCorrupt) {
    throw Bad{code, std::move(what)};
}

template <typename T>
T At(Bytes bytes, uint64_t at) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T)) Fail("an offset leaves its block");
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

// A table of a flatbuffer (https://flatbuffers.dev/internals).
class Table {
  public:
    static Table Root(Bytes bytes) { return {bytes, At<uint32_t>(bytes, 0)}; }

    template <typename T>
    T Number(int field, T fallback = {}) const {
        const uint64_t at = Place(field);
        return at == 0 ? fallback : At<T>(bytes_, at);
    }
    bool Has(int field) const { return Place(field) != 0; }
    Table Sub(int field) const { return {bytes_, Follow(field)}; }
    std::string Text(int field) const {
        if (!Has(field)) return "";
        const uint64_t at = Follow(field), size = At<uint32_t>(bytes_, at);
        if (size > bytes_.size() - at - 4) Fail("a name leaves its block");
        return {reinterpret_cast<const char*>(bytes_.data() + at + 4), size};
    }
    // The elements of a vector, each of which has `stride` bytes.
    uint64_t Count(int field) const { return Has(field) ? At<uint32_t>(bytes_, Follow(field)) : 0; }
    template <typename T>
    T Element(int field, uint64_t index, uint64_t stride, uint64_t offset = 0) const {
        return At<T>(bytes_, Follow(field) + 4 + index * stride + offset);
    }
    Table Child(int field, uint64_t index) const {
        const uint64_t at = Follow(field) + 4 + index * 4;
        return {bytes_, at + At<uint32_t>(bytes_, at)};
    }

  private:
    Table(Bytes bytes, uint64_t at) : bytes_(bytes), at_(at) {}
    uint64_t Place(int field) const {
        const int64_t table = static_cast<int64_t>(at_) - At<int32_t>(bytes_, at_);
        if (table < 0) Fail("an offset leaves its block");
        const auto fields = static_cast<uint64_t>(table);
        const auto entry = static_cast<uint64_t>(4 + 2 * field);
        if (entry >= At<uint16_t>(bytes_, fields)) return 0;
        const uint16_t at = At<uint16_t>(bytes_, fields + entry);
        return at == 0 ? 0 : at_ + at;
    }
    uint64_t Follow(int field) const {
        const uint64_t at = Place(field);
        if (at == 0) Fail("a part is missing");
        return at + At<uint32_t>(bytes_, at);
    }

    Bytes bytes_;
    uint64_t at_;
};

// Numbers of Schema.fbs and Message.fbs.
enum MessageKind : uint8_t { kSchema = 1, kDictionary = 2, kBatch = 3 };
enum TypeKind : uint8_t {
    kNull = 1,
    kInt = 2,
    kFloat = 3,
    kText = 5,
    kBool = 6,
    kList = 12,
    kStruct = 13,
    kLargeText = 20,
    kLargeList = 21
};

struct Field {
    std::string name;
    uint8_t type = 0;
    int bits = 0;  // of numbers
    bool is_signed = false;
    std::vector<Field> children;
};

// count: the number of fields so far.
Field FieldOf(const Table& table, int depth, size_t& count) {
    if (depth > kMostDepth || ++count > kMostFields) {
        Fail("its types nest too deep, or are too many", ErrorCode::kUnsupported);
    }
    Field field;
    field.name = table.Text(0);
    if (field.name.size() > kMostName) Fail("a column has a long name");
    field.type = table.Number<uint8_t>(2);
    const auto refuse = [&](const char* what) {
        Fail(fmt::format("column '{}' has {}", field.name, what), ErrorCode::kUnsupported);
    };
    if (table.Has(4)) refuse("a dictionary");
    for (uint64_t i = 0; i < table.Count(5); ++i) {
        field.children.push_back(FieldOf(table.Child(5, i), depth + 1, count));
    }
    switch (field.type) {
        case kNull:
        case kBool:
        case kText:
        case kLargeText:
        case kStruct: break;
        case kInt:
            field.bits = table.Sub(3).Number<int32_t>(0);
            field.is_signed = table.Sub(3).Number<uint8_t>(1) != 0;
            break;
        case kFloat: field.bits = 16 << std::min<int>(table.Sub(3).Number<uint16_t>(0), 2); break;
        case kList:
        case kLargeList:
            if (field.children.size() != 1) Fail("a list has no type");
            break;
        default: refuse("a type other than numbers, strings, lists and structs of these");
    }
    const bool number = field.type == kInt || field.type == kFloat;
    if (number && (!std::has_single_bit(static_cast<unsigned>(field.bits)) || field.bits < 8 ||
                   field.bits > 64)) {
        Fail("a number has an odd size");
    }
    return field;
}

// The values of a column in a batch.
struct Column {
    const Field* field = nullptr;
    int64_t length = 0;
    Bytes valid, offsets, data;
    std::vector<Column> children;
};

class Batch {
  public:
    Batch(const Table& table, Bytes body) : table_(table), body_(body) {
        if (table.Has(3)) Fail("its columns are compressed", ErrorCode::kUnsupported);
    }
    int64_t length() const { return table_.Number<int64_t>(0); }

    Column Take(const Field& field) {
        if (nodes_ >= table_.Count(1)) Fail("a column is missing");
        Column column{&field, table_.Element<int64_t>(1, nodes_++, 16), {}, {}, {}, {}};
        // (Columns of these types may have no bytes.)
        const bool empty = field.type == kNull || field.type == kStruct;
        if (column.length < 0 || column.length > (empty ? kMostRecords : kMostLength)) {
            Fail("a column is too long", ErrorCode::kUnsupported);
        }
        if (field.type == kNull) return column;
        column.valid = Buffer();
        const bool list = field.type == kList || field.type == kLargeList;
        const bool text = field.type == kText || field.type == kLargeText;
        if (list || text) column.offsets = Buffer();
        if (!list && field.type != kStruct) column.data = Buffer();
        for (const Field& child : field.children) column.children.push_back(Take(child));
        return column;
    }

  private:
    Bytes Buffer() {
        if (buffers_ >= table_.Count(2)) Fail("a buffer is missing");
        const auto offset = table_.Element<uint64_t>(2, buffers_, 16);
        const auto size = table_.Element<uint64_t>(2, buffers_++, 16, 8);
        if (offset > body_.size() || size > body_.size() - offset) {
            Fail("a buffer leaves its batch");
        }
        return body_.subspan(offset, size);
    }

    const Table table_;
    const Bytes body_;
    uint64_t nodes_ = 0, buffers_ = 0;
};

bool Bit(Bytes bits, int64_t index) {
    return (At<uint8_t>(bits, static_cast<uint64_t>(index / 8)) >> (index % 8) & 1) != 0;
}

// The part [first, second) of a string or list.
std::pair<int64_t, int64_t> PartOf(const Column& column, int64_t index, bool large) {
    const auto at = static_cast<uint64_t>(index);
    std::pair<int64_t, int64_t> part;
    if (large) {
        part = {At<int64_t>(column.offsets, 8 * at), At<int64_t>(column.offsets, 8 * at + 8)};
    } else {
        part = {At<int32_t>(column.offsets, 4 * at), At<int32_t>(column.offsets, 4 * at + 4)};
    }
    if (part.first < 0 || part.second < part.first) Fail("the offsets of a column do not ascend");
    return part;
}

Json NumberOf(const Column& column, int64_t index) {
    const auto bytes = static_cast<uint64_t>(column.field->bits) / 8;
    const uint64_t at = static_cast<uint64_t>(index) * bytes;
    if (at > column.data.size() || column.data.size() - at < bytes) Fail("a column is too short");
    uint64_t raw = 0;
    std::memcpy(&raw, column.data.data() + at, bytes);
    if (column.field->type == kInt && !column.field->is_signed) return raw;
    if (column.field->type == kInt) {
        const int rest = 64 - column.field->bits;
        return static_cast<int64_t>(raw << rest) >> rest;
    }
    double value = std::bit_cast<double>(raw);
    if (bytes == 4) value = double{std::bit_cast<float>(static_cast<uint32_t>(raw))};
    if (bytes == 2) value = double{F16ToF32(static_cast<uint16_t>(raw))};
    return std::isfinite(value) ? Json(value) : Json();
}

Json ObjectOf(std::span<const Column> columns, int64_t index, uint64_t& left);

// left: the number of values that the record may still have.
Json ValueOf(const Column& column, int64_t index, uint64_t& left) {
    if (left-- == 0) Fail("a record has too many values", ErrorCode::kUnsupported);
    if (index < 0 || index >= column.length) Fail("a column is too short");
    if (column.field->type == kNull) return nullptr;
    if (!column.valid.empty() && !Bit(column.valid, index)) return nullptr;
    const bool large = column.field->type == kLargeText || column.field->type == kLargeList;
    switch (column.field->type) {
        case kBool: return Bit(column.data, index);
        case kInt:
        case kFloat: return NumberOf(column, index);
        case kText:
        case kLargeText: {
            const auto [begin, end] = PartOf(column, index, large);
            if (end > std::ssize(column.data)) Fail("a string leaves its column");
            return std::string(reinterpret_cast<const char*>(column.data.data()) + begin,
                               static_cast<size_t>(end - begin));
        }
        case kList:
        case kLargeList: {
            const auto [begin, end] = PartOf(column, index, large);
            Json list = Json::array();
            for (int64_t i = begin; i < end; ++i) {
                list.push_back(ValueOf(column.children[0], i, left));
            }
            return list;
        }
        default: {
            return ObjectOf(column.children, index, left);
        }
    }
}

// (datasets gives a record null for each member that only others have.)
Json ObjectOf(std::span<const Column> columns, int64_t index, uint64_t& left) {
    Json object = Json::object();
    for (const Column& column : columns) {
        Json value = ValueOf(column, index, left);
        if (!value.is_null()) object[column.field->name] = std::move(value);
    }
    return object;
}

class Reader {
  public:
    using Take = std::function<Status(std::string_view)>;
    Reader(const File& file, uint64_t begin, const Take& take)
        : file_(file), at_(begin), take_(take) {}

    Status Run() {
        for (;;) {
            WEFT_ASSIGN(const uint64_t size, NextSize());
            if (size == 0) return {};
            if (size > kMostMetadata) Fail("a message has too much metadata");
            WEFT_ASSIGN(const std::vector<std::byte> head, Next(size));
            const Table message = Table::Root(head);
            const auto body_bytes = message.Number<uint64_t>(3);
            if (body_bytes > kMostBatchBytes) {
                Fail(fmt::format("a batch of records has {} bytes; at most {} are read", body_bytes,
                                 kMostBatchBytes),
                     ErrorCode::kUnsupported);
            }
            WEFT_ASSIGN(const std::vector<std::byte> body, Next(body_bytes));
            const auto kind = message.Number<uint8_t>(1);
            if (kind == kSchema) TakeSchema(message.Sub(2));
            if (kind == kDictionary) Fail("it has a dictionary", ErrorCode::kUnsupported);
            if (kind == kBatch) WEFT_TRY(TakeBatch(message.Sub(2), body));
        }
    }

  private:
    Result<std::vector<std::byte>> Next(uint64_t size) {
        if (size > file_.size_bytes() - at_) Fail("it ends within a message");
        std::vector<std::byte> bytes(size);
        WEFT_TRY(file_.ReadAt(at_, bytes));
        at_ += size;
        return bytes;
    }
    // The size of the next message's metadata; 0: the end. (Before Arrow 0.15, no 0xffffffff comes
    // before it.)
    Result<uint64_t> NextSize() {
        if (file_.size_bytes() - at_ < 4) return uint64_t{0};
        WEFT_ASSIGN(std::vector<std::byte> size, Next(4));
        if (At<uint32_t>(size, 0) == UINT32_MAX) {
            WEFT_ASSIGN(size, Next(4));
        }
        return uint64_t{At<uint32_t>(size, 0)};
    }

    void TakeSchema(const Table& schema) {
        if (schema.Number<int16_t>(0) != 0) Fail("it is big-endian", ErrorCode::kUnsupported);
        fields_.clear();
        size_t count = 0;
        for (uint64_t i = 0; i < schema.Count(1); ++i) {
            fields_.push_back(FieldOf(schema.Child(1, i), 0, count));
        }
    }

    Status TakeBatch(const Table& table, Bytes body) {
        Batch batch(table, body);
        std::vector<Column> columns;
        for (const Field& field : fields_) columns.push_back(batch.Take(field));
        if (columns.empty()) Fail("its records have no columns");
        if (batch.length() < 0 || batch.length() > kMostRecords) {
            Fail("a batch has too many records", ErrorCode::kUnsupported);
        }
        std::string lines;
        for (int64_t i = 0; i < batch.length(); ++i) {
            uint64_t left = kMostValues;
            lines += ObjectOf(columns, i, left).dump() + "\n";
            if (lines.size() < kPieceBytes && i + 1 < batch.length()) continue;
            WEFT_TRY(take_(lines));
            lines.clear();
        }
        return {};
    }

    const File& file_;
    uint64_t at_;
    const Take& take_;
    std::vector<Field> fields_;
};

}  // namespace
}  // namespace arrow

std::optional<uint64_t> ArrowBegin(std::string_view head) {
    if (head.starts_with(arrow::kFileMagic)) return arrow::kFileMagic.size();
    // A stream begins with the size of its schema, a multiple of 8.
    if (head.size() < 8 || !head.starts_with("\xff\xff\xff\xff")) return std::nullopt;
    uint32_t size = 0;
    std::memcpy(&size, head.data() + 4, sizeof size);
    if (size == 0 || size % 8 != 0 || size > arrow::kMostMetadata) return std::nullopt;
    return 0;
}

Status ReadArrow(const File& file, uint64_t begin,
                 const std::function<Status(std::string_view lines)>& take) {
    const auto error = [&](ErrorCode code, std::string_view what) {
        return MakeError(code, "{}: it can't be read as an Arrow file: {}", file.path(), what);
    };
    try {
        return arrow::Reader(file, begin, take).Run();
    } catch (const arrow::Bad& bad) {
        return error(bad.code, bad.what);
    } catch (const arrow::Json::exception&) {
        return error(ErrorCode::kCorrupt, "a string is not UTF-8");
    }
}

}  // namespace weft::train
