#include "train/data/arrow_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "train/data/record_lines.h"

namespace weft::train {
namespace arrow {
namespace {

using Bytes = ColumnBytes;

constexpr uint64_t kMostMetadata = 64 << 20;
constexpr int64_t kMostRecords = 1 << 24, kMostLength = 1 << 28;
constexpr std::string_view kFileMagic = "ARROW1";

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
    kBinary = 4,
    kText = 5,
    kBool = 6,
    kDecimal = 7,
    kDate = 8,
    kTime = 9,
    kTimestamp = 10,
    kInterval = 11,
    kList = 12,
    kStruct = 13,
    kFixedBinary = 15,
    kFixedList = 16,
    kMap = 17,
    kDuration = 18,
    kLargeBinary = 19,
    kLargeText = 20,
    kLargeList = 21,
    kBinaryView = 23,
    kTextView = 24
};

struct Field {
    std::string name, key;
    uint8_t type = 0;
    Scalar scalar;
    uint64_t bytes = 0;  // of a value of a fixed size; kFixedList: values of a list
    std::vector<Field> children;
    // The values of a dictionary; the field has their places in it.
    std::vector<Field> values;
    int64_t dictionary = 0;

    bool is_large() const {
        return type == kLargeText || type == kLargeBinary || type == kLargeList;
    }
    bool is_view() const { return type == kTextView || type == kBinaryView; }
    bool is_text() const {
        return type == kText || type == kLargeText || type == kBinary || type == kLargeBinary;
    }
    bool is_list() const { return type == kList || type == kLargeList || type == kMap; }
    // Whether a value needs no bytes.
    bool is_empty() const { return type == kNull || type == kStruct || type == kFixedList; }
};

// A number of this many bits.
void SetNumber(Field& field, Scalar::Kind kind, int64_t bits) {
    const int64_t most = kind == Scalar::kDecimal ? 256 : 64;
    if (bits < 8 || bits > most || !std::has_single_bit(static_cast<uint64_t>(bits))) {
        ColumnFail(fmt::format("the numbers of column '{}' have an odd size", field.name));
    }
    field.scalar.kind = kind;
    field.bytes = static_cast<uint64_t>(bits) / 8;
}

// type: the table of the field's type.
void SetScalar(Field& field, const Table& type) {
    Scalar& scalar = field.scalar;
    switch (field.type) {
        case kInt:
            SetNumber(field, Scalar::kInt, type.Number<int32_t>(0));
            scalar.is_signed = type.Number<uint8_t>(1) != 0;
            break;
        case kFloat:
            SetNumber(field, Scalar::kFloat, 16 << std::min<int>(type.Number<uint16_t>(0), 2));
            break;
        case kDecimal: {
            SetNumber(field, Scalar::kDecimal, type.Number<int32_t>(2, 128));
            scalar.scale = type.Number<int32_t>(1);
            const bool odd = scalar.scale < 0 || scalar.scale > kMostDecimalScale;
            if (odd) scalar.kind = Scalar::kUnread;
            break;
        }
        case kDate: {
            const bool days = type.Number<int16_t>(0, 1) == 0;
            SetNumber(field, days ? Scalar::kDate : Scalar::kTime, days ? 32 : 64);
            scalar.scale = 3;
            break;
        }
        case kTimestamp:
            SetNumber(field, Scalar::kTime, 64);
            scalar.scale = 3 * std::min<int>(type.Number<uint16_t>(0), 3);
            scalar.utc = type.Has(1);
            break;
        case kTime:
            SetNumber(field, Scalar::kClock, type.Number<int32_t>(1, 32));
            scalar.scale = 3 * std::min<int>(type.Number<uint16_t>(0, 1), 3);
            break;
        case kDuration: SetNumber(field, Scalar::kInt, 64); break;  // (as in Parquet)
        case kInterval:
            field.bytes = uint64_t{4} << std::min<int>(type.Number<uint16_t>(0), 2);
            scalar.kind = Scalar::kUnread;
            break;
        case kFixedBinary:
        case kFixedList: {
            const auto size = type.Number<int32_t>(0);
            if (size < 0) ColumnFail("a list has an odd length");
            field.bytes = static_cast<uint64_t>(size);
            scalar.kind = Scalar::kUnread;
            break;
        }
        default: break;
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

// The places of values in a dictionary. encoding: the table of the dictionary.
Field PlacesOf(Field values, const Table& encoding) {
    if (!values.children.empty()) {
        ColumnFail(fmt::format("column '{}' has a dictionary of lists or structs. Write the file "
                               "as Parquet",
                               values.name),
                   ErrorCode::kUnsupported);
    }
    Field field;
    field.name = values.name;
    field.key = values.key;
    field.type = kInt;
    field.dictionary = encoding.Number<int64_t>(0);
    SetNumber(field, Scalar::kInt, encoding.Has(1) ? encoding.Sub(1).Number<int32_t>(0) : 32);
    field.values.push_back(std::move(values));
    return field;
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
    for (uint64_t i = 0; i < table.Count(5); ++i) {
        field.children.push_back(FieldOf(table.Child(5, i), depth + 1, count));
    }
    switch (field.type) {
        case kNull:
        case kStruct: break;
        case kBool: field.scalar.kind = Scalar::kBool; break;
        case kText:
        case kLargeText:
        case kTextView: field.scalar.kind = IsJson(table) ? Scalar::kJson : Scalar::kText; break;
        case kBinary:
        case kLargeBinary:
        case kBinaryView: field.scalar.kind = Scalar::kBytes; break;
        case kInt:
        case kFloat:
        case kDecimal:
        case kDate:
        case kTime:
        case kTimestamp:
        case kInterval:
        case kFixedBinary:
        case kDuration: SetScalar(field, table.Sub(3)); break;
        case kFixedList: SetScalar(field, table.Sub(3)); [[fallthrough]];
        case kList:
        case kLargeList:
        case kMap:
            if (field.children.size() != 1) ColumnFail("a list has no type");
            break;
        default:
            ColumnFail(fmt::format("column '{}' has a type that is not read (number {} of "
                                   "Schema.fbs). Write the file without this column, or as Parquet",
                                   field.name, field.type),
                       ErrorCode::kUnsupported);
    }
    return table.Has(4) ? PlacesOf(std::move(field), table.Sub(4)) : field;
}

// The values of a column in a batch.
struct Column {
    const Field* field = nullptr;
    int64_t length = 0;
    Bytes valid, offsets, data;
    std::vector<Bytes> parts;            // of views
    const Column* dictionary = nullptr;  // the field has places in it
    std::vector<Column> children;
};

struct Dictionary {
    std::vector<std::byte> body;
    Column values;
};
using Dictionaries = std::map<int64_t, Dictionary>;

class Batch {
  public:
    Batch(const Table& table, Bytes body, const Dictionaries& dictionaries)
        : table_(table), body_(body), dictionaries_(dictionaries) {
        if (table.Has(3)) {
            ColumnFail(
                "its columns are compressed. Write it with compression='uncompressed', or "
                "as Parquet",
                ErrorCode::kUnsupported);
        }
    }
    int64_t length() const { return table_.Number<int64_t>(0); }

    Column Take(const Field& field) {
        if (nodes_ >= table_.Count(1)) ColumnFail("a column is missing");
        Column column;
        column.field = &field;
        column.length = table_.Element<int64_t>(1, nodes_++, 16);
        if (column.length < 0 || column.length > (field.is_empty() ? kMostRecords : kMostLength)) {
            ColumnFail("a column is too long", ErrorCode::kUnsupported);
        }
        if (field.type == kNull) return column;
        column.valid = Buffer();
        if (field.is_list() || field.is_text()) column.offsets = Buffer();
        if (!field.is_list() && !field.is_empty()) column.data = Buffer();
        if (field.is_view()) {
            if (views_ >= table_.Count(4)) ColumnFail("a buffer is missing");
            const auto parts = table_.Element<uint64_t>(4, views_++, 8);
            for (uint64_t i = 0; i < parts; ++i) column.parts.push_back(Buffer());
        }
        if (!field.values.empty()) {
            const auto found = dictionaries_.find(field.dictionary);
            if (found != dictionaries_.end()) column.dictionary = &found->second.values;
        }
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
    const Dictionaries& dictionaries_;
    uint64_t nodes_ = 0, buffers_ = 0, views_ = 0;
};

bool Bit(Bytes bits, int64_t index) {
    return (NumberAt<uint8_t>(bits, static_cast<uint64_t>(index / 8)) >> (index % 8) & 1) != 0;
}

// The part [first, second) of a string or list.
std::pair<int64_t, int64_t> PartOf(const Column& column, int64_t index) {
    const auto at = static_cast<uint64_t>(index);
    std::pair<int64_t, int64_t> part;
    if (column.field->type == kFixedList) {
        const auto size = static_cast<int64_t>(column.field->bytes);  // (31 bits, times 24)
        return {index * size, (index + 1) * size};
    }
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

// The part [begin, begin + size) of a column's bytes.
Bytes PartOf(Bytes bytes, uint64_t begin, uint64_t size) {
    if (begin > bytes.size() || size > bytes.size() - begin) ColumnFail("a column is too short");
    return bytes.subspan(begin, size);
}

// The bytes of a value: a text, or a number.
Bytes ValueOf(const Column& column, int64_t index) {
    const Field& field = *column.field;
    const auto at = static_cast<uint64_t>(index);
    if (field.is_text()) {
        const auto [begin, end] = PartOf(column, index);
        return PartOf(column.data, static_cast<uint64_t>(begin),
                      static_cast<uint64_t>(end - begin));
    }
    if (!field.is_view()) return PartOf(column.data, at * field.bytes, field.bytes);
    // A view: a size, and up to 12 bytes or four of them, the number of a part, a place in it.
    const Bytes view = PartOf(column.data, at * 16, 16);
    const auto size = NumberAt<uint32_t>(view, 0);
    if (size <= 12) return view.subspan(4, size);
    const auto part = NumberAt<uint32_t>(view, 8);
    if (part >= column.parts.size()) ColumnFail("a string has no place");
    return PartOf(column.parts[part], NumberAt<uint32_t>(view, 12), size);
}

void WriteObject(std::span<const Column> columns, int64_t index, RecordLines& out);

void WriteValue(const Column& column, int64_t index, RecordLines& out) {
    if (index < 0 || index >= column.length) ColumnFail("a column is too short");
    const Field& field = *column.field;
    if (field.type == kNull || (!column.valid.empty() && !Bit(column.valid, index))) {
        return out.Null();
    }
    if (field.type == kStruct) return WriteObject(column.children, index, out);
    if (field.is_list() || field.type == kFixedList) {
        const auto [begin, end] = PartOf(column, index);
        out.Begin('[');
        for (int64_t i = begin; i < end; ++i) WriteValue(column.children[0], i, out);
        return out.End(']');
    }
    if (field.type == kBool) {
        const auto bit = static_cast<std::byte>(Bit(column.data, index));
        return out.Value(field.scalar, {&bit, 1}, field.name);
    }
    const Bytes value = ValueOf(column, index);
    if (field.values.empty()) return out.Value(field.scalar, value, field.name);
    int64_t place = 0;
    std::memcpy(&place, value.data(), value.size());
    if (column.dictionary == nullptr) ColumnFail("a dictionary is missing");
    WriteValue(*column.dictionary, place, out);
}

void WriteObject(std::span<const Column> columns, int64_t index, RecordLines& out) {
    out.Begin('{');
    for (const Column& column : columns) {
        out.Key(column.field->key);
        WriteValue(column, index, out);
    }
    out.End('}');
}

const Field* FindDictionary(std::span<const Field> fields, int64_t id) {
    for (const Field& field : fields) {
        if (!field.values.empty() && field.dictionary == id) return field.values.data();
        if (const Field* found = FindDictionary(field.children, id)) return found;
    }
    return nullptr;
}

class Reader {
  public:
    Reader(const File& file, const RecordLines::Take& take) : file_(file), lines_(take) {}

    Status Run() {
        WEFT_ASSIGN(const std::vector<std::byte> head,
                    Next(std::min<uint64_t>(kFileMagic.size(), file_.size_bytes())));
        if (IsMagic(head)) return RunFile();
        for (at_ = 0;;) {
            WEFT_ASSIGN(const uint64_t size, NextSize());
            if (size == 0) return lines_.Flush();
            if (size > kMostMetadata) ColumnFail("a message has too much metadata");
            WEFT_ASSIGN(const std::vector<std::byte> message, Next(size));
            WEFT_TRY(TakeMessage(Table::Root(message)));
        }
    }

  private:
    static bool IsMagic(Bytes bytes) {
        return std::ranges::equal(bytes, std::as_bytes(std::span(kFileMagic)));
    }

    // A file ends with a footer, its size, and the magic. The footer has the schema and the places
    // of the batches. (Not all writers put a whole stream before it.)
    Status RunFile() {
        constexpr uint64_t kTail = 4 + kFileMagic.size();
        at_ = file_.size_bytes() - std::min(kTail, file_.size_bytes());
        WEFT_ASSIGN(const std::vector<std::byte> tail, Next(file_.size_bytes() - at_));
        if (tail.size() < kTail || !IsMagic(std::span(tail).subspan(4))) {
            ColumnFail("its end is missing. Is it complete?");
        }
        const uint64_t size = NumberAt<uint32_t>(tail, 0);
        if (size > kMostMetadata || size > file_.size_bytes() - kTail) {
            ColumnFail("its end is damaged");
        }
        at_ = file_.size_bytes() - kTail - size;
        WEFT_ASSIGN(const std::vector<std::byte> bytes, Next(size));
        const Table footer = Table::Root(bytes);
        TakeSchema(footer.Sub(1));
        for (const int blocks : {2, 3}) {  // dictionaries, batches
            for (uint64_t i = 0; i < footer.Count(blocks); ++i) {
                at_ = footer.Element<uint64_t>(blocks, i, 24);
                if (at_ > file_.size_bytes()) ColumnFail("a part lies behind its end");
                const uint64_t end = at_ + footer.Element<uint32_t>(blocks, i, 24, 8);
                WEFT_ASSIGN(const uint64_t metadata, NextSize());
                if (metadata > kMostMetadata || end < at_) ColumnFail("a batch has an odd head");
                WEFT_ASSIGN(const std::vector<std::byte> message,
                            Next(std::min(metadata, end - at_)));
                at_ = end;
                WEFT_TRY(TakeMessage(Table::Root(message)));
            }
        }
        return lines_.Flush();
    }

    Result<std::vector<std::byte>> Next(uint64_t size) {
        if (at_ > file_.size_bytes() || size > file_.size_bytes() - at_) {
            ColumnFail("it ends within a message");
        }
        if ((taken_ += size) > 2 * file_.size_bytes()) ColumnFail("its batches overlap");
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

    // Takes a message with its body, which comes next.
    Status TakeMessage(const Table& message) {
        const auto body_bytes = message.Number<uint64_t>(3);
        if (body_bytes > kMostColumnBytes) {
            ColumnFail(fmt::format("a batch of records has {} bytes; at most {} are read",
                                   body_bytes, kMostColumnBytes),
                       ErrorCode::kUnsupported);
        }
        WEFT_ASSIGN(std::vector<std::byte> body, Next(body_bytes));
        const auto kind = message.Number<uint8_t>(1);
        if (kind == kBatch) return TakeBatch(message.Sub(2), body);
        if (kind == kSchema) TakeSchema(message.Sub(2));
        if (kind == kDictionary) TakeDictionary(message.Sub(2), std::move(body));
        return {};
    }

    void TakeSchema(const Table& schema) {
        if (schema.Number<int16_t>(0) != 0) ColumnFail("it is big-endian", ErrorCode::kUnsupported);
        fields_.clear();
        dictionaries_.clear();
        size_t count = 0;
        for (uint64_t i = 0; i < schema.Count(1); ++i) {
            fields_.push_back(FieldOf(schema.Child(1, i), 0, count));
        }
    }

    void TakeDictionary(const Table& table, std::vector<std::byte> body) {
        const auto id = table.Number<int64_t>(0);
        const Field* field = FindDictionary(fields_, id);
        if (field == nullptr) return;
        if (table.Number<uint8_t>(2) != 0) {
            ColumnFail(fmt::format("the dictionary of column '{}' comes in parts. Write the file "
                                   "as Parquet",
                                   field->name),
                       ErrorCode::kUnsupported);
        }
        Dictionary& dictionary = dictionaries_[id];
        dictionary.values = {};
        dictionary.body = std::move(body);
        dictionary.values = Batch(table.Sub(1), dictionary.body, {}).Take(*field);
        uint64_t held = 0;
        for (const auto& [each, taken] : dictionaries_) held += taken.body.size();
        if (held > kMostColumnBytes) {
            ColumnFail(fmt::format("its dictionaries have more than {} bytes", kMostColumnBytes),
                       ErrorCode::kUnsupported);
        }
    }

    Status TakeBatch(const Table& table, Bytes body) {
        Batch batch(table, body, dictionaries_);
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
    uint64_t at_ = 0, taken_ = 0;
    RecordLines lines_;
    std::vector<Field> fields_;
    Dictionaries dictionaries_;
};

}  // namespace
}  // namespace arrow

bool IsArrow(std::string_view head) {
    if (head.starts_with(arrow::kFileMagic)) return true;
    // A stream begins with the size of its schema, a multiple of 8.
    if (head.size() < 8 || !head.starts_with("\xff\xff\xff\xff")) return false;
    uint32_t size = 0;
    std::memcpy(&size, head.data() + 4, sizeof size);
    return size != 0 && size % 8 == 0 && size <= arrow::kMostMetadata;
}

Status ReadArrow(const File& file, const RecordLines::Take& take) {
    try {
        return arrow::Reader(file, take).Run();
    } catch (const ColumnFault& fault) {
        return MakeError(fault.code, "{}: it can't be read as an Arrow file: {}", file.path(),
                         fault.what);
    }
}

}  // namespace weft::train
