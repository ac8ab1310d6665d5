#include "train/data/arrow_stream.h"

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "train/data/record_lines.h"

namespace weft::train {
namespace arrow {
namespace {

using Bytes = ColumnBytes;

constexpr uint64_t kMostMetadata = 64 << 20;
constexpr int64_t kMostRecords = 1 << 24, kMostLength = 1 << 28;
constexpr std::string_view kFileMagic{"ARROW1\0\0", 8};

// A table of a flatbuffer (https://flatbuffers.dev/internals).
class Table {
  public:
    static Table Root(Bytes bytes) { return {bytes, NumberAt<uint32_t>(bytes, 0)}; }

    template <typename T>
    T Number(int field, T fallback = {}) const {
        const uint64_t at = Place(field);
        return at == 0 ? fallback : NumberAt<T>(bytes_, at);
    }
    bool Has(int field) const { return Place(field) != 0; }
    Table Sub(int field) const { return {bytes_, Follow(field)}; }
    std::string Text(int field) const {
        if (!Has(field)) return "";
        const uint64_t at = Follow(field), size = NumberAt<uint32_t>(bytes_, at);
        if (size > bytes_.size() - at - 4) ColumnFail("a name leaves its block");
        return {reinterpret_cast<const char*>(bytes_.data() + at + 4), size};
    }
    // The elements of a vector, each of which has `stride` bytes.
    uint64_t Count(int field) const {
        return Has(field) ? NumberAt<uint32_t>(bytes_, Follow(field)) : 0;
    }
    template <typename T>
    T Element(int field, uint64_t index, uint64_t stride, uint64_t offset = 0) const {
        return NumberAt<T>(bytes_, Follow(field) + 4 + index * stride + offset);
    }
    Table Child(int field, uint64_t index) const {
        const uint64_t at = Follow(field) + 4 + index * 4;
        return {bytes_, at + NumberAt<uint32_t>(bytes_, at)};
    }

  private:
    Table(Bytes bytes, uint64_t at) : bytes_(bytes), at_(at) {}
    uint64_t Place(int field) const {
        const int64_t table = static_cast<int64_t>(at_) - NumberAt<int32_t>(bytes_, at_);
        if (table < 0) ColumnFail("an offset leaves its block");
        const auto fields = static_cast<uint64_t>(table);
        const auto entry = static_cast<uint64_t>(4 + 2 * field);
        if (entry >= NumberAt<uint16_t>(bytes_, fields)) return 0;
        const uint16_t at = NumberAt<uint16_t>(bytes_, fields + entry);
        return at == 0 ? 0 : at_ + at;
    }
    uint64_t Follow(int field) const {
        const uint64_t at = Place(field);
        if (at == 0) ColumnFail("a part is missing");
        return at + NumberAt<uint32_t>(bytes_, at);
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
    kDecimal = 7,
    kDate = 8,
    kTimestamp = 10,
    kList = 12,
    kStruct = 13,
    kLargeText = 20,
    kLargeList = 21
};

struct Field {
    std::string name, key;
    uint8_t type = 0;
    Scalar scalar;
    int bits = 0;  // of numbers
    std::vector<Field> children;

    bool is_large() const { return type == kLargeText || type == kLargeList; }
    bool is_text() const { return type == kText || type == kLargeText; }
    bool is_list() const { return type == kList || type == kLargeList; }
};

// type: the table of the field's type.
void SetScalar(Field& field, const Table& type) {
    Scalar& scalar = field.scalar;
    switch (field.type) {
        case kInt:
            scalar.kind = Scalar::kInt;
            field.bits = type.Number<int32_t>(0);
            scalar.is_signed = type.Number<uint8_t>(1) != 0;
            break;
        case kFloat:
            scalar.kind = Scalar::kFloat;
            field.bits = 16 << std::min<int>(type.Number<uint16_t>(0), 2);
            break;
        case kDecimal:
            scalar.kind = Scalar::kDecimal;
            scalar.scale = type.Number<int32_t>(1);
            field.bits = type.Number<int32_t>(2, 128);
            break;
        case kDate: {
            const bool days = type.Number<int16_t>(0, 1) == 0;
            scalar.kind = days ? Scalar::kDate : Scalar::kTime;
            scalar.scale = 3;
            field.bits = days ? 32 : 64;
            break;
        }
        case kTimestamp:
            scalar.kind = Scalar::kTime;
            scalar.scale = 3 * std::min<int>(type.Number<uint16_t>(0), 3);
            scalar.utc = type.Has(1);
            field.bits = 64;
            break;
        default: return;
    }
    const int most = field.type == kDecimal ? 256 : 64;
    if (!std::has_single_bit(static_cast<unsigned>(field.bits)) || field.bits < 8 ||
        field.bits > most || scalar.scale < 0 || scalar.scale > kMostDecimalScale) {
        ColumnFail("a number has an odd size");
    }
}

// Whether a field of strings has the extension type for JSON texts.
bool IsJson(const Table& field) {
    for (uint64_t i = 0; i < field.Count(6); ++i) {
        const Table member = field.Child(6, i);
        if (member.Text(0) == "ARROW:extension:name") return member.Text(1) == "arrow.json";
    }
    return false;
}

// count: the number of fields so far.
Field FieldOf(const Table& table, int depth, size_t& count) {
    if (depth > kMostColumnDepth || ++count > kMostColumns) {
        ColumnFail("its types nest too deep, or are too many", ErrorCode::kUnsupported);
    }
    Field field;
    field.name = table.Text(0);
    field.key = RecordLines::KeyOf(field.name);
    field.type = table.Number<uint8_t>(2);
    const auto refuse = [&](const char* what) {
        ColumnFail(fmt::format("column '{}' has {}", field.name, what), ErrorCode::kUnsupported);
    };
    if (table.Has(4)) refuse("a dictionary");
    for (uint64_t i = 0; i < table.Count(5); ++i) {
        field.children.push_back(FieldOf(table.Child(5, i), depth + 1, count));
    }
    switch (field.type) {
        case kNull:
        case kStruct: break;
        case kBool: field.scalar.kind = Scalar::kBool; break;
        case kText:
        case kLargeText: field.scalar.kind = IsJson(table) ? Scalar::kJson : Scalar::kText; break;
        case kInt:
        case kFloat:
        case kDecimal:
        case kDate:
        case kTimestamp: SetScalar(field, table.Sub(3)); break;
        case kList:
        case kLargeList:
            if (field.children.size() != 1) ColumnFail("a list has no type");
            break;
        default: refuse("a type other than numbers, strings, times, lists and structs of these");
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
        if (table.Has(3)) ColumnFail("its columns are compressed", ErrorCode::kUnsupported);
    }
    int64_t length() const { return table_.Number<int64_t>(0); }

    Column Take(const Field& field) {
        if (nodes_ >= table_.Count(1)) ColumnFail("a column is missing");
        Column column{&field, table_.Element<int64_t>(1, nodes_++, 16), {}, {}, {}, {}};
        // (Columns of these types may have no bytes.)
        const bool empty = field.type == kNull || field.type == kStruct;
        if (column.length < 0 || column.length > (empty ? kMostRecords : kMostLength)) {
            ColumnFail("a column is too long", ErrorCode::kUnsupported);
        }
        if (field.type == kNull) return column;
        column.valid = Buffer();
        if (field.is_list() || field.is_text()) column.offsets = Buffer();
        if (!field.is_list() && field.type != kStruct) column.data = Buffer();
        for (const Field& child : field.children) column.children.push_back(Take(child));
        return column;
    }

  private:
    Bytes Buffer() {
        if (buffers_ >= table_.Count(2)) ColumnFail("a buffer is missing");
        const auto offset = table_.Element<uint64_t>(2, buffers_, 16);
        const auto size = table_.Element<uint64_t>(2, buffers_++, 16, 8);
        if (offset > body_.size() || size > body_.size() - offset) {
            ColumnFail("a buffer leaves its batch");
        }
        return body_.subspan(offset, size);
    }

    const Table table_;
    const Bytes body_;
    uint64_t nodes_ = 0, buffers_ = 0;
};

bool Bit(Bytes bits, int64_t index) {
    return (NumberAt<uint8_t>(bits, static_cast<uint64_t>(index / 8)) >> (index % 8) & 1) != 0;
}

// The part [first, second) of a string or list.
std::pair<int64_t, int64_t> PartOf(const Column& column, int64_t index) {
    const auto at = static_cast<uint64_t>(index);
    std::pair<int64_t, int64_t> part;
    if (column.field->is_large()) {
        part = {NumberAt<int64_t>(column.offsets, 8 * at),
                NumberAt<int64_t>(column.offsets, 8 * at + 8)};
    } else {
        part = {NumberAt<int32_t>(column.offsets, 4 * at),
                NumberAt<int32_t>(column.offsets, 4 * at + 4)};
    }
    if (part.first < 0 || part.second < part.first) {
        ColumnFail("the offsets of a column do not ascend");
    }
    return part;
}

// The part [begin, end) of a column's bytes.
Bytes DataOf(const Column& column, uint64_t begin, uint64_t end) {
    if (begin > end || end > column.data.size()) ColumnFail("a column is too short");
    return column.data.subspan(begin, end - begin);
}

void WriteObject(std::span<const Column> columns, int64_t index, RecordLines& out);

void WriteValue(const Column& column, int64_t index, RecordLines& out) {
    if (index < 0 || index >= column.length) ColumnFail("a column is too short");
    const Field& field = *column.field;
    if (!column.valid.empty() && !Bit(column.valid, index)) return out.Null();
    if (field.type == kStruct) return WriteObject(column.children, index, out);
    if (field.is_list()) {
        const auto [begin, end] = PartOf(column, index);
        out.Begin('[');
        for (int64_t i = begin; i < end; ++i) WriteValue(column.children[0], i, out);
        return out.End(']');
    }
    if (field.is_text()) {
        const auto [begin, end] = PartOf(column, index);
        return out.Value(field.scalar,
                         DataOf(column, static_cast<uint64_t>(begin), static_cast<uint64_t>(end)),
                         field.name);
    }
    if (field.type == kBool) {
        const auto bit = static_cast<std::byte>(Bit(column.data, index));
        return out.Value(field.scalar, {&bit, 1}, field.name);
    }
    const auto bytes = static_cast<uint64_t>(field.bits) / 8;
    const auto at = static_cast<uint64_t>(index) * bytes;
    const bool none = field.type == kNull;
    out.Value(field.scalar, none ? Bytes() : DataOf(column, at, at + bytes), field.name);
}

void WriteObject(std::span<const Column> columns, int64_t index, RecordLines& out) {
    out.Begin('{');
    for (const Column& column : columns) {
        out.Key(column.field->key);
        WriteValue(column, index, out);
    }
    out.End('}');
}

class Reader {
  public:
    Reader(const File& file, uint64_t begin, const RecordLines::Take& take)
        : file_(file), at_(begin), lines_(take) {}

    Status Run() {
        for (;;) {
            WEFT_ASSIGN(const uint64_t size, NextSize());
            if (size == 0) return lines_.Flush();
            if (size > kMostMetadata) ColumnFail("a message has too much metadata");
            WEFT_ASSIGN(const std::vector<std::byte> head, Next(size));
            const Table message = Table::Root(head);
            const auto body_bytes = message.Number<uint64_t>(3);
            if (body_bytes > kMostColumnBytes) {
                ColumnFail(fmt::format("a batch of records has {} bytes; at most {} are read",
                                       body_bytes, kMostColumnBytes),
                           ErrorCode::kUnsupported);
            }
            WEFT_ASSIGN(const std::vector<std::byte> body, Next(body_bytes));
            const auto kind = message.Number<uint8_t>(1);
            if (kind == kSchema) TakeSchema(message.Sub(2));
            if (kind == kDictionary) ColumnFail("it has a dictionary", ErrorCode::kUnsupported);
            if (kind == kBatch) WEFT_TRY(TakeBatch(message.Sub(2), body));
        }
    }

  private:
    Result<std::vector<std::byte>> Next(uint64_t size) {
        if (size > file_.size_bytes() - at_) ColumnFail("it ends within a message");
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
        if (NumberAt<uint32_t>(size, 0) == UINT32_MAX) {
            WEFT_ASSIGN(size, Next(4));
        }
        return uint64_t{NumberAt<uint32_t>(size, 0)};
    }

    void TakeSchema(const Table& schema) {
        if (schema.Number<int16_t>(0) != 0) ColumnFail("it is big-endian", ErrorCode::kUnsupported);
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
        if (columns.empty()) ColumnFail("its records have no columns");
        if (batch.length() < 0 || batch.length() > kMostRecords) {
            ColumnFail("a batch has too many records", ErrorCode::kUnsupported);
        }
        for (int64_t i = 0; i < batch.length(); ++i) {
            WriteObject(columns, i, lines_);
            WEFT_TRY(lines_.EndRecord());
        }
        return {};
    }

    const File& file_;
    uint64_t at_;
    RecordLines lines_;
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

Status ReadArrow(const File& file, uint64_t begin, const RecordLines::Take& take) {
    try {
        return arrow::Reader(file, begin, take).Run();
    } catch (const ColumnFault& fault) {
        return MakeError(fault.code, "{}: it can't be read as an Arrow file: {}", file.path(),
                         fault.what);
    }
}

}  // namespace weft::train
