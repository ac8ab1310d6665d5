#include "train/data/parquet_footer.h"

#include <algorithm>

namespace weft::train::parquet {
namespace {

constexpr uint64_t kMostFooter = 64 << 20, kMostChunks = 1 << 22;
constexpr uint64_t kMostNumber = uint64_t{1} << 50;
constexpr int kMostSkipDepth = 64, kMostFixedBytes = 1 << 20;

// The input ended. (A page's header is read with more bytes then.)
struct TooShort {};

// Values of Thrift's compact protocol
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
class Thrift {
  public:
    enum Type {
        kTrue = 1,
        kFalse = 2,
        kByte = 3,
        kDouble = 7,
        kBinary = 8,
        kList = 9,
        kSet = 10,
        kMap = 11,
        kStruct = 12
    };
    explicit Thrift(ColumnBytes bytes) : bytes_(bytes) {}
    uint64_t at() const { return at_; }

    // Calls field(id, type) for each field; it must read the value (or Skip it).
    template <typename F>
    void Struct(int type, const F& field) {
        Expect(type == kStruct);
        for (int id = 0;;) {
            const int head = Byte();
            if (head == 0) return;
            const int delta = head >> 4;
            const int64_t next = delta > 0 ? id + delta : UnZigzag(Number());
            Expect(next > -32768 && next < 32768);
            id = static_cast<int>(next);
            field(id, head & 15);
        }
    }
    // Calls element(type) for each element.
    template <typename F>
    void List(int type, const F& element) {
        Expect(type == kList || type == kSet);
        const int head = Byte();
        const uint64_t count = head >> 4 == 15 ? Number() : static_cast<uint64_t>(head >> 4);
        if (count > bytes_.size() - at_) throw TooShort{};  // each has a byte or more
        for (uint64_t i = 0; i < count; ++i) element(head & 15);
    }
    int64_t Int(int type) {
        Expect(type >= kByte && type < kDouble);
        return type == kByte ? int64_t{static_cast<int8_t>(Byte())} : UnZigzag(Number());
    }
    uint64_t Size(int type) {
        const int64_t value = Int(type);
        Expect(value >= 0 && static_cast<uint64_t>(value) <= kMostNumber);
        return static_cast<uint64_t>(value);
    }
    int Small(int type) { return static_cast<int>(std::min<uint64_t>(Size(type), 1 << 30)); }
    static bool Bool(int type) {
        Expect(type == kTrue || type == kFalse);
        return type == kTrue;
    }
    std::string_view Text(int type) {
        Expect(type == kBinary);
        const uint64_t size = Number();
        if (size > bytes_.size() - at_) throw TooShort{};
        const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + at_;
        at_ += size;
        return {begin, size};
    }
    void Skip(int type, int depth = 0) {
        Expect(depth < kMostSkipDepth);
        const auto element = [&](int of) {  // (in lists, a Boolean is a byte)
            if (of == kTrue || of == kFalse) return static_cast<void>(Byte());
            Skip(of, depth + 1);
        };
        if (type == kTrue || type == kFalse) return;
        if (type == kBinary) return static_cast<void>(Text(type));
        if (type == kStruct) return Struct(type, [&](int, int of) { Skip(of, depth + 1); });
        if (type == kList || type == kSet) return List(type, element);
        if (type == kDouble) {
            for (int i = 0; i < 8; ++i) Byte();
            return;
        }
        if (type != kMap) return static_cast<void>(Int(type));
        const uint64_t count = Number();
        if (count > bytes_.size() - at_) throw TooShort{};
        const int types = count > 0 ? Byte() : 0;
        for (uint64_t i = 0; i < count; ++i) {
            element(types >> 4);
            element(types & 15);
        }
    }

  private:
    static void Expect(bool good) {
        if (!good) ColumnFail("its metadata are damaged");
    }
    int Byte() {
        if (at_ >= bytes_.size()) throw TooShort{};
        return static_cast<int>(bytes_[at_++]);
    }
    uint64_t Number() {
        if (at_ + 10 > bytes_.size() && std::ranges::all_of(bytes_.subspan(at_), [](std::byte b) {
                return (b & std::byte{0x80}) != std::byte{0};
            })) {
            throw TooShort{};
        }
        return Varint(bytes_, at_);
    }

    const ColumnBytes bytes_;
    uint64_t at_ = 0;
};

// A row of the schema: a tree in depth-first order.
struct Element {
    enum Repetition { kRequired, kOptional, kRepeated };
    std::string name;
    int physical = -1, bytes = 0, repetition = kRequired, children = 0;
    int converted = -1;  // ConvertedType
    int logical = 0;     // field of LogicalType
    int scale = 0, bits = 0, unit = 0;
    bool is_signed = true, utc = true;

    bool is_list() const {
        return logical == 2 || logical == 3 || (converted >= 1 && converted <= 3);
    }
};

void ReadLogical(Thrift& in, int type, Element& out) {
    in.Struct(type, [&](int kind, int of) {
        out.logical = kind;
        in.Struct(of, [&](int id, int inner) {
            const bool sized = kind == 10, time = kind == 7 || kind == 8;
            if (kind == 5 && id == 1) {
                out.scale = in.Small(inner);
            } else if (sized && id == 1) {
                out.bits = in.Small(inner);
            } else if (sized && id == 2) {
                out.is_signed = Thrift::Bool(inner);
            } else if (time && id == 1) {
                out.utc = Thrift::Bool(inner);
            } else if (time && id == 2) {
                in.Struct(inner, [&](int unit, int empty) {
                    out.unit = unit;
                    in.Skip(empty);
                });
            } else {
                in.Skip(inner);
            }
        });
    });
}

Element ReadElement(Thrift& in, int type) {
    Element out;
    in.Struct(type, [&](int id, int of) {
        switch (id) {
            case 1: out.physical = in.Small(of); break;
            case 2: out.bytes = in.Small(of); break;
            case 3: out.repetition = in.Small(of); break;
            case 4: out.name = in.Text(of); break;
            case 5: out.children = in.Small(of); break;
            case 6: out.converted = in.Small(of); break;
            case 7: out.scale = in.Small(of); break;
            case 10: ReadLogical(in, of, out); break;
            default: in.Skip(of);
        }
    });
    return out;
}

// Builds the nodes from the rows of the schema.
class Schema {
  public:
    Schema(const std::vector<Element>& elements, Footer& out) : elements_(elements), out_(out) {}

    void Run() {
        const Element& root = Next();
        out_.record.kind = Node::kStruct;
        AddChildren(out_.record, root, "", 0, 0, 0);
        if (at_ != elements_.size()) ColumnFail("its schema has parts outside the record");
    }

  private:
    const Element& Next() {
        if (at_ >= elements_.size()) ColumnFail("its schema ends too early");
        return elements_[at_++];
    }
    bool NextIs(int repetition, size_t ahead = 0) const {
        return at_ + ahead < elements_.size() && elements_[at_ + ahead].repetition == repetition;
    }

    void AddChildren(Node& node, const Element& of, const std::string& path, int definition,
                     int repetition, int depth) {
        if (of.children == 0) {
            ColumnFail(fmt::format("'{}' has no columns", path), ErrorCode::kUnsupported);
        }
        for (int i = 0; i < of.children; ++i) {
            node.children.push_back(Make(path, definition, repetition, depth + 1));
        }
        node.end_leaf = out_.leaves.size();
    }

    // The next row as a value; one that is repeated without a list around it is a list.
    Node Make(const std::string& parent, int definition, int repetition, int depth) {
        const Element& of = Next();
        const std::string path = parent.empty() ? of.name : parent + "." + of.name;
        if (of.repetition != Element::kRepeated) {
            if (of.repetition == Element::kOptional) ++definition;
            return Body(of, path, definition, repetition, depth);
        }
        Node list = ListOf(of, definition, repetition);
        list.children.push_back(Body(of, path, definition + 1, repetition + 1, depth));
        list.end_leaf = out_.leaves.size();
        return list;
    }

    Node NodeOf(Node::Kind kind, const Element& of, int definition) const {
        Node node;
        node.kind = kind;
        node.key = RecordLines::KeyOf(of.name);
        node.definition = definition;
        node.first_leaf = out_.leaves.size();
        return node;
    }
    Node ListOf(const Element& of, int definition, int repetition) const {
        Node list = NodeOf(Node::kList, of, definition);
        list.element_definition = definition + 1;
        list.element_repetition = repetition + 1;
        return list;
    }

    Node Body(const Element& of, const std::string& path, int definition, int repetition,
              int depth) {
        if (depth > kMostColumnDepth) {
            ColumnFail("its types nest too deep", ErrorCode::kUnsupported);
        }
        if (of.physical >= 0 && of.children == 0) {
            Node leaf = NodeOf(Node::kLeaf, of, definition);
            AddLeaf(of, path, definition, repetition);
            leaf.end_leaf = out_.leaves.size();
            return leaf;
        }
        if (!of.is_list() || of.children != 1 || !NextIs(Element::kRepeated)) {
            Node node = NodeOf(Node::kStruct, of, definition);
            AddChildren(node, of, path, definition, repetition, depth);
            return node;
        }
        Node list = ListOf(of, definition, repetition);
        const Element& repeated = Next();
        const bool itself = repeated.children != 1 || repeated.name == "array" ||
                            repeated.name == of.name + "_tuple" || NextIs(Element::kRepeated);
        list.children.push_back(
            itself ? Body(repeated, path, definition + 1, repetition + 1, depth + 1)
                   : Make(path, definition + 1, repetition + 1, depth + 1));
        list.end_leaf = out_.leaves.size();
        return list;
    }

    void AddLeaf(const Element& of, const std::string& path, int definition, int repetition) {
        if (out_.leaves.size() >= kMostColumns) {
            ColumnFail("it has too many columns", ErrorCode::kUnsupported);
        }
        if (of.physical > static_cast<int>(Physical::kFixed)) ColumnFail("a column has no type");
        LeafType leaf;
        leaf.name = path;
        leaf.physical = static_cast<Physical>(of.physical);
        leaf.most_definition = definition;
        leaf.most_repetition = repetition;
        constexpr int kBytes[] = {1, 4, 8, 12, 4, 8, 0, 0};
        const bool fixed = leaf.physical == Physical::kFixed;
        leaf.bytes = fixed ? of.bytes : kBytes[of.physical];
        if (fixed && (of.bytes < 1 || of.bytes > kMostFixedBytes)) {
            Refuse(path, "values of an odd size");
        }
        leaf.scalar = ScalarOf(of, leaf);
        out_.leaves.push_back(std::move(leaf));
    }

    [[noreturn]] static void Refuse(const std::string& path, std::string_view what) {
        ColumnFail(fmt::format("column '{}' has {}", path, what), ErrorCode::kUnsupported);
    }

    static Scalar ScalarOf(const Element& of, const LeafType& leaf) {
        Scalar scalar;
        scalar.utc = of.utc;
        const bool integer = leaf.physical == Physical::kInt32 || leaf.physical == Physical::kInt64;
        const bool text = leaf.physical == Physical::kText,
                   fixed = leaf.physical == Physical::kFixed;
        if ((of.logical == 5 || of.converted == 5) && (integer || text || fixed)) {
            scalar.kind = Scalar::kDecimal;
            scalar.big_endian = !integer;
            scalar.scale = of.scale;
            if (of.scale > kMostDecimalScale) scalar.kind = Scalar::kUnread;
        } else if (integer && (of.logical == 6 || of.converted == 6)) {
            if (leaf.bytes != 4) Refuse(leaf.name, "dates of an odd size");
            scalar.kind = Scalar::kDate;
        } else if (integer && (of.logical == 8 || of.converted == 9 || of.converted == 10)) {
            scalar.kind = Scalar::kTime;
            scalar.scale = 3 * (of.logical == 8 ? std::min(of.unit, 3) : of.converted - 8);
        } else if (integer && (of.logical == 7 || of.converted == 7 || of.converted == 8)) {
            scalar.kind = Scalar::kClock;
            scalar.scale = 3 * (of.logical == 7 ? std::min(of.unit, 3) : of.converted - 6);
            scalar.utc = false;
        } else if (integer) {
            scalar.kind = Scalar::kInt;
            scalar.is_signed = of.is_signed && !(of.converted >= 11 && of.converted <= 14);
        } else if (leaf.physical == Physical::kFloat || leaf.physical == Physical::kDouble) {
            scalar.kind = Scalar::kFloat;
        } else if (leaf.physical == Physical::kInt96) {
            scalar.kind = Scalar::kInt96;
            scalar.scale = 9;
            scalar.utc = false;
        } else if (leaf.physical == Physical::kBool) {
            scalar.kind = Scalar::kBool;
        } else if (fixed && of.logical == 15 && leaf.bytes == 2) {
            scalar.kind = Scalar::kFloat;
        } else if (text) {
            constexpr int kUtf8[] = {1, 0}, kEnum[] = {4, 4}, kJson[] = {12, 19};
            const auto is = [&](const int(&said)[2]) {
                return of.logical == said[0] || of.converted == said[1];
            };
            scalar.kind = is(kJson)                ? Scalar::kJson
                          : is(kUtf8) || is(kEnum) ? Scalar::kText
                                                   : Scalar::kBytes;
        } else {
            scalar.kind = Scalar::kUnread;
        }
        return scalar;
    }

    const std::vector<Element>& elements_;
    Footer& out_;
    size_t at_ = 0;
};

Chunk ReadChunk(Thrift& in, int type) {
    Chunk out;
    uint64_t data = 0, dictionary = 0;
    const auto meta = [&](int id, int of) {
        switch (id) {
            case 4: out.codec = in.Small(of); break;
            case 5: out.values = in.Size(of); break;
            case 7: out.bytes = in.Size(of); break;
            case 9: data = in.Size(of); break;
            case 11: dictionary = in.Size(of); break;
            default: in.Skip(of);
        }
    };
    in.Struct(type, [&](int id, int of) {
        if (id == 1) ColumnFail("its columns are in other files", ErrorCode::kUnsupported);
        if (id == 8) ColumnFail("it is encrypted", ErrorCode::kUnsupported);
        if (id == 3) return in.Struct(of, meta);
        in.Skip(of);
    });
    out.begin = dictionary > 0 ? std::min(dictionary, data) : data;
    return out;
}

RowGroup ReadGroup(Thrift& in, int type) {
    RowGroup out;
    in.Struct(type, [&](int id, int of) {
        switch (id) {
            case 1:
                in.List(of, [&](int one) {
                    if (out.chunks.size() >= kMostColumns) {
                        ColumnFail("a row group has too many columns", ErrorCode::kUnsupported);
                    }
                    out.chunks.push_back(ReadChunk(in, one));
                });
                break;
            case 3: out.records = in.Size(of); break;
            default: in.Skip(of);
        }
    });
    return out;
}

void ReadFileMetadata(Thrift& in, Footer& footer) {
    std::vector<Element> elements;
    uint64_t chunks = 0;
    in.Struct(Thrift::kStruct, [&](int id, int of) {
        if (id == 2) {
            in.List(of, [&](int one) {
                elements.push_back(ReadElement(in, one));
                if (elements.size() > 4 * kMostColumns) {
                    ColumnFail("it has too many columns", ErrorCode::kUnsupported);
                }
            });
        } else if (id == 4) {
            in.List(of, [&](int one) {
                footer.groups.push_back(ReadGroup(in, one));
                chunks += 1 + footer.groups.back().chunks.size();
                if (chunks > kMostChunks) {
                    ColumnFail("it has too many row groups", ErrorCode::kUnsupported);
                }
            });
        } else {
            in.Skip(of);
        }
    });
    Schema(elements, footer).Run();
}

void ReadPage(Thrift& in, int id, int type, PageHeader& out) {
    switch (id) {
        case 1: out.values = in.Size(type); break;
        case 2: out.encoding = in.Small(type); break;
        case 3: out.definition_encoding = in.Small(type); break;
        case 4: out.repetition_encoding = in.Small(type); break;
        default: in.Skip(type);
    }
}

void ReadDictionary(Thrift& in, int id, int type, PageHeader& out) {
    switch (id) {
        case 1: out.values = in.Size(type); break;
        case 2: out.encoding = in.Small(type); break;
        default: in.Skip(type);
    }
}

void ReadPageV2(Thrift& in, int id, int type, PageHeader& out) {
    switch (id) {
        case 1: out.values = in.Size(type); break;
        case 4: out.encoding = in.Small(type); break;
        case 5: out.definition_bytes = in.Size(type); break;
        case 6: out.repetition_bytes = in.Size(type); break;
        case 7: out.is_packed = Thrift::Bool(type); break;
        default: in.Skip(type);
    }
}

}  // namespace

uint64_t Varint(ColumnBytes bytes, uint64_t& at) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        const auto byte = NumberAt<uint8_t>(bytes, at++);
        if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80) return value;
    }
    ColumnFail("a number is too long");
}

void ReadInto(const File& file, uint64_t at, std::vector<std::byte>& bytes) {
    if (at > file.size_bytes() || bytes.size() > file.size_bytes() - at) {
        ColumnFail("a part lies behind its end");
    }
    const Status read = file.ReadAt(at, bytes);
    if (!read.ok()) throw Error(read.error());
}

Footer ReadFooter(const File& file) {
    constexpr uint64_t kTail = 8;
    if (file.size_bytes() < 4 + kTail) ColumnFail("it ends too early. Is it complete?");
    std::vector<std::byte> bytes(kTail);
    ReadInto(file, file.size_bytes() - kTail, bytes);
    const std::string_view magic(reinterpret_cast<const char*>(bytes.data()) + 4, 4);
    if (magic == "PARE") ColumnFail("it is encrypted", ErrorCode::kUnsupported);
    if (magic != "PAR1") ColumnFail("its end is missing. Is it complete?");
    const uint64_t size = NumberAt<uint32_t>(bytes, 0);
    if (size > file.size_bytes() - kTail) ColumnFail("its end is damaged");
    if (size > kMostFooter) {
        ColumnFail(
            fmt::format("its metadata have {} bytes; at most {} are read", size, kMostFooter),
            ErrorCode::kUnsupported);
    }
    bytes.resize(size);
    ReadInto(file, file.size_bytes() - kTail - size, bytes);
    Footer footer;
    Thrift in(bytes);
    try {
        ReadFileMetadata(in, footer);
    } catch (const TooShort&) {
        ColumnFail("its metadata end too early");
    }
    for (const RowGroup& group : footer.groups) {
        if (group.chunks.size() != footer.leaves.size()) ColumnFail("a row group lacks columns");
    }
    return footer;
}

std::optional<PageHeader> ParsePageHeader(ColumnBytes bytes) {
    Thrift in(bytes);
    PageHeader out;
    try {
        in.Struct(Thrift::kStruct, [&](int id, int of) {
            switch (id) {
                case 1: out.kind = in.Small(of); break;
                case 2: out.bytes = in.Size(of); break;
                case 3: out.packed_bytes = in.Size(of); break;
                case 5: in.Struct(of, [&](int i, int t) { ReadPage(in, i, t, out); }); break;
                case 7: in.Struct(of, [&](int i, int t) { ReadDictionary(in, i, t, out); }); break;
                case 8: in.Struct(of, [&](int i, int t) { ReadPageV2(in, i, t, out); }); break;
                default: in.Skip(of);
            }
        });
    } catch (const TooShort&) {
        return std::nullopt;
    }
    out.header_bytes = in.at();
    return out;
}

}  // namespace weft::train::parquet
