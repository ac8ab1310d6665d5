#include "model_files/hf/torch_file.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/byte_codec.h"
#include "model_files/hf/json.h"

namespace weft::model_files::hf {
namespace {

constexpr uint64_t kMostPickleBytes = 32 << 20, kMostDirectoryBytes = 64 << 20;
constexpr size_t kMostValues = 1 << 21, kMostTorchDims = 8, kMostKeyBytes = 64,
                 kMostNameBytes = 256;
constexpr const char* kNext = "Save the tensors as safetensors, or get the file in that format";

template <typename... Args>
Error Corrupt(const WeightFile& file, fmt::format_string<Args...> format, Args&&... args) {
    return MakeError(ErrorCode::kCorrupt, "{}: {}", file.path(),
                     fmt::format(format, std::forward<Args>(args)...));
}

// ---- The zip ------------------------------------------------------------------------------------

struct Part {
    uint64_t offset, bytes;  // of the data
};

Result<std::vector<std::byte>> ReadBytes(const WeightFile& file, uint64_t offset, uint64_t bytes) {
    if (offset > file.size_bytes() || bytes > file.size_bytes() - offset) {
        return Corrupt(file, "a part of {} bytes at {} is beyond the end", bytes, offset);
    }
    std::vector<std::byte> read(bytes);
    WEFT_TRY(file.ReadAt(offset, read));
    return read;
}

struct Directory {
    uint64_t offset = 0, bytes = 0;
};

// From the record at the end of the file, or from the 64-bit record before it.
Result<Directory> FindDirectory(const WeightFile& file) {
    constexpr uint64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kMostComment = 0xffff;
    const uint64_t size = file.size_bytes(), tail = std::min(size, kEndBytes + kMostComment);
    WEFT_ASSIGN(const std::vector<std::byte> bytes, ReadBytes(file, size - tail, tail));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const size_t at = text.rfind("PK\5\6");
    if (!text.starts_with("PK") && at == text.npos) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: not a zip file of torch.save (PyTorch 1.6 and later). {}",
                         file.path(), kNext);
    }
    if (at == text.npos || text.size() - at < kEndBytes) {
        return Corrupt(file, "a zip file without its directory. Is it complete?");
    }
    ByteReader end{std::span(bytes).subspan(at + 12)};
    Directory found;
    found.bytes = end.Take<uint32_t>();
    found.offset = end.Take<uint32_t>();
    const uint64_t end_at = size - tail + at;
    if (found.offset != 0xffffffff && found.bytes != 0xffffffff) return found;
    if (end_at < kLocatorBytes) return Corrupt(file, "a zip file without its 64-bit directory");
    WEFT_ASSIGN(const auto locator, ReadBytes(file, end_at - kLocatorBytes, kLocatorBytes));
    ByteReader place{std::span(locator).subspan(8)};
    WEFT_ASSIGN(const auto record, ReadBytes(file, place.Take<uint64_t>(), kEnd64Bytes));
    ByteReader wide{std::span(record).subspan(40)};
    found.bytes = wide.Take<uint64_t>();
    found.offset = wide.Take<uint64_t>();
    return found;
}

// The 64-bit numbers that replace numbers of 0xffffffff, in this order.
void ReadWide(std::string_view extra, std::initializer_list<uint64_t*> numbers) {
    ByteReader fields(extra);
    while (fields.ok() && fields.left() >= 4) {
        const uint64_t id = fields.Take<uint16_t>();
        const std::string_view field = fields.RawText(fields.Take<uint16_t>());
        if (id != 1) continue;
        ByteReader wide(field);
        for (uint64_t* number : numbers) {
            if (*number == 0xffffffff) *number = wide.Take<uint64_t>();
        }
    }
}

// The parts by their names without the first folder: "data.pkl", "data/0".
Result<std::map<std::string, Part, std::less<>>> ReadParts(const WeightFile& file) {
    constexpr uint64_t kLocalBytes = 30;
    WEFT_ASSIGN(const Directory directory, FindDirectory(file));
    if (directory.bytes > kMostDirectoryBytes) {
        return Corrupt(file, "a zip directory of {} bytes", directory.bytes);
    }
    WEFT_ASSIGN(const auto bytes, ReadBytes(file, directory.offset, directory.bytes));
    std::map<std::string, Part, std::less<>> parts;
    ByteReader at(bytes);
    while (at.left() > 0) {
        if (at.RawText(4) != "PK\1\2") return Corrupt(file, "a broken zip directory");
        at.RawText(6);
        const uint64_t method = at.Take<uint16_t>();
        at.RawText(8);
        uint64_t packed = at.Take<uint32_t>(), plain = at.Take<uint32_t>();
        const uint64_t name_bytes = at.Take<uint16_t>(), extra = at.Take<uint16_t>(),
                       comment = at.Take<uint16_t>();
        at.RawText(8);
        uint64_t local = at.Take<uint32_t>();
        const std::string_view name = at.RawText(name_bytes);
        ReadWide(at.RawText(extra), {&plain, &packed, &local});
        at.RawText(comment);
        if (!at.ok()) return Corrupt(file, "a zip directory that ends within an entry");
        if (method != 0 || packed != plain) {
            return MakeError(ErrorCode::kUnsupported, "{}: '{}' is compressed. {}", file.path(),
                             Shown(name), kNext);
        }
        WEFT_ASSIGN(const auto head, ReadBytes(file, local, kLocalBytes));
        ByteReader lengths{std::span(head).subspan(26)};
        const uint64_t skipped = uint64_t{lengths.Take<uint16_t>()} + lengths.Take<uint16_t>();
        const uint64_t begin = local + kLocalBytes + skipped;
        if (begin > file.size_bytes() || plain > file.size_bytes() - begin) {
            return Corrupt(file, "'{}' has {} bytes at {}, beyond the end", Shown(name), plain,
                           begin);
        }
        parts.emplace(name.substr(name.find('/') + 1), Part{begin, plain});
    }
    return parts;
}

// ---- The pickle ---------------------------------------------------------------------------------

constexpr struct {
    std::string_view name;
    SafeType type;
} kStorages[] = {
    {"torch.FloatStorage", SafeType::kF32},     {"torch.HalfStorage", SafeType::kF16},
    {"torch.BFloat16Storage", SafeType::kBF16}, {"torch.DoubleStorage", SafeType::kF64},
    {"torch.LongStorage", SafeType::kI64},      {"torch.IntStorage", SafeType::kI32},
    {"torch.ShortStorage", SafeType::kI16},     {"torch.CharStorage", SafeType::kI8},
    {"torch.ByteStorage", SafeType::kU8},       {"torch.BoolStorage", SafeType::kBool}};

using Id = uint32_t;  // of a value

enum class Kind : uint8_t { kOther, kMark, kInt, kText, kGlobal, kList, kDict, kStorage, kTensor };

struct Value {
    Kind kind = Kind::kOther;
    int64_t number = 0;          // kInt; kTensor: the first element in its storage
    std::string text = {};       // kText, kGlobal; kStorage, kTensor: the storage's key
    std::vector<Id> items = {};  // kList (also a tuple); kDict: key, value, ...
    SafeType type = SafeType::kF32;
    std::vector<int64_t> shape = {};
};

// Runs a pickle's opcodes on values that are only data.
class Machine {
  public:
    Machine(const WeightFile& file, std::span<const std::byte> pickle) : file_(file), at_(pickle) {}

    // The last value: a dict of tensors.
    Result<std::vector<std::pair<std::string, Value>>> Run() {
        for (;;) {
            const auto opcode = static_cast<unsigned char>(at_.Take<uint8_t>());
            if (!at_.ok()) return Corrupt(file_, "data.pkl ends too early");
            if (opcode == '.') break;
            WEFT_TRY(Do(opcode));
            if (!at_.ok() || !good_) return Corrupt(file_, "data.pkl is not a valid pickle");
        }
        const Value* last = Pop();
        if (last == nullptr || last->kind != Kind::kDict) {
            return NotTensors("the file is not a dict of tensors");
        }
        std::vector<std::pair<std::string, Value>> tensors;
        for (size_t i = 0; i + 1 < last->items.size(); i += 2) {
            const Value &key = values_[last->items[i]], &value = values_[last->items[i + 1]];
            if (key.kind != Kind::kText || value.kind != Kind::kTensor) {
                return NotTensors(fmt::format("'{}' is not a tensor", Shown(key.text)));
            }
            tensors.emplace_back(key.text, value);
        }
        return tensors;
    }

  private:
    Error NotTensors(std::string_view what) const {
        return MakeError(ErrorCode::kUnsupported, "{}: {}; only plain tensors are read. {}",
                         file_.path(), what, kNext);
    }

    // Up to a newline, which is skipped.
    std::string_view Line() {
        const size_t end = at_.rest().find('\n');
        return at_.RawText(end == std::string_view::npos ? end : end + 1).substr(0, end);
    }
    void Push(Value value) {
        good_ = good_ && values_.size() < kMostValues;
        if (!good_) return;
        stack_.push_back(static_cast<Id>(values_.size()));
        values_.push_back(std::move(value));
    }
    void PushInt(int64_t number) { Push({.kind = Kind::kInt, .number = number}); }
    void PushText(std::string_view text) { Push({.kind = Kind::kText, .text = std::string(text)}); }
    Id PopId() {
        good_ = good_ && !stack_.empty();
        if (!good_) return 0;
        const Id id = stack_.back();
        stack_.pop_back();
        return id;
    }
    // nullptr: the stack is empty. Valid until the next Push.
    Value* Pop() {
        const Id id = PopId();
        return good_ ? &values_[id] : nullptr;
    }
    Value* Top() {
        good_ = good_ && !stack_.empty();
        return good_ ? &values_[stack_.back()] : nullptr;
    }
    // Everything above the last mark, which is removed too.
    std::vector<Id> PopToMark() {
        size_t begin = stack_.size();
        while (begin > 0 && values_[stack_[begin - 1]].kind != Kind::kMark) --begin;
        good_ = good_ && begin > 0;
        if (!good_) return {};
        std::vector<Id> items(stack_.begin() + static_cast<ptrdiff_t>(begin), stack_.end());
        stack_.resize(begin - 1);
        return items;
    }
    void PushTuple(size_t count) {
        std::vector<Id> items(count);
        for (size_t i = count; i > 0; --i) items[i - 1] = PopId();
        Push({.kind = Kind::kList, .items = std::move(items)});
    }
    void Extend(Kind kind, const std::vector<Id>& items) {
        Value* const value = Top();
        good_ = good_ && value->kind == kind && (kind != Kind::kDict || items.size() % 2 == 0);
        if (good_) value->items.insert(value->items.end(), items.begin(), items.end());
    }
    void Remember(uint64_t key) {
        good_ = good_ && !stack_.empty();
        if (good_) memo_[key] = stack_.back();
    }
    void Recall(uint64_t key) {
        const auto found = memo_.find(key);
        good_ = good_ && found != memo_.end();
        if (good_) stack_.push_back(found->second);
    }
    void PushGlobal(std::string_view module, std::string_view name) {
        Push({.kind = Kind::kGlobal, .text = fmt::format("{}.{}", module, name)});
    }
    // The items of a list or tuple; nullptr: `id` is no such value with this many items or more.
    const std::vector<Id>* ItemsOf(Id id, size_t least) const {
        const Value& value = values_[id];
        return value.kind == Kind::kList && value.items.size() >= least ? &value.items : nullptr;
    }
    std::optional<std::vector<int64_t>> Ints(Id id) const {
        const std::vector<Id>* items = ItemsOf(id, 0);
        if (items == nullptr || items->size() > kMostTorchDims) return std::nullopt;
        std::vector<int64_t> ints;
        for (const Id item : *items) {
            if (values_[item].kind != Kind::kInt) return std::nullopt;
            ints.push_back(values_[item].number);
        }
        return ints;
    }

    Status Do(unsigned char opcode);
    Status DoNumber(unsigned char opcode);
    Status DoMore(unsigned char opcode);
    Status LoadStorage();
    Status Call();
    Status Rebuild(const std::vector<Id>& arguments);

    const WeightFile& file_;
    ByteReader at_;
    bool good_ = true;
    std::vector<Value> values_;
    std::vector<Id> stack_;
    std::map<uint64_t, Id> memo_;
};

Status Machine::Do(unsigned char opcode) {
    switch (opcode) {
        case 0x80: at_.RawText(1); break;  // PROTO
        case 0x95: at_.RawText(8); break;  // FRAME
        case '(': Push({.kind = Kind::kMark}); break;
        case '}': Push({.kind = Kind::kDict}); break;
        case ']':
        case ')': Push({.kind = Kind::kList}); break;
        case 'c': {  // GLOBAL
            const std::string_view module = Line();
            PushGlobal(module, Line());
            break;
        }
        case 'X': PushText(at_.RawText(at_.Take<uint32_t>())); break;  // BINUNICODE
        case 0x8c: PushText(at_.RawText(at_.Take<uint8_t>())); break;  // SHORT_BINUNICODE
        case 'q': Remember(at_.Take<uint8_t>()); break;                // BINPUT
        case 'r': Remember(at_.Take<uint32_t>()); break;
        case 0x94: Remember(memo_.size()); break;      // MEMOIZE
        case 'h': Recall(at_.Take<uint8_t>()); break;  // BINGET
        case 'j': Recall(at_.Take<uint32_t>()); break;
        case 't': Push({.kind = Kind::kList, .items = PopToMark()}); break;  // TUPLE
        case 0x85:
        case 0x86:
        case 0x87: PushTuple(opcode - 0x84u); break;
        case 'Q': return LoadStorage();  // BINPERSID
        case 'R': return Call();         // REDUCE
        default: return DoNumber(opcode);
    }
    return {};
}

Status Machine::DoNumber(unsigned char opcode) {
    switch (opcode) {
        case 'K': PushInt(static_cast<int64_t>(at_.Take<uint8_t>())); break;
        case 'M': PushInt(static_cast<int64_t>(at_.Take<uint16_t>())); break;
        case 'J': PushInt(static_cast<int32_t>(at_.Take<uint32_t>())); break;
        case 0x8a: {  // LONG1: little-endian, of as many bytes as needed
            const uint64_t bytes = at_.Take<uint8_t>();
            good_ = good_ && bytes <= 8;
            if (!good_) break;
            uint64_t number = 0;
            const std::string_view text = at_.RawText(bytes);
            std::copy(text.begin(), text.end(), reinterpret_cast<char*>(&number));
            const bool negative = bytes > 0 && bytes < 8 && number >> (bytes * 8 - 1) != 0;
            if (negative) number |= ~uint64_t{0} << bytes * 8;
            PushInt(static_cast<int64_t>(number));
            break;
        }
        case 0x88: PushInt(1); break;
        case 0x89: PushInt(0); break;
        case 'N': Push({}); break;
        default: return DoMore(opcode);
    }
    return {};
}

Status Machine::DoMore(unsigned char opcode) {
    switch (opcode) {
        case 'u': {  // SETITEMS
            const std::vector<Id> items = PopToMark();
            Extend(Kind::kDict, items);
            break;
        }
        case 's': {  // SETITEM
            const Id value = PopId(), key = PopId();
            Extend(Kind::kDict, {key, value});
            break;
        }
        case 'e': {  // APPENDS
            const std::vector<Id> items = PopToMark();
            Extend(Kind::kList, items);
            break;
        }
        case 'a': {
            const Id value = PopId();
            Extend(Kind::kList, {value});
            break;
        }
        case 'b': {  // BUILD: attributes of a dict, such as its _metadata
            PopId();
            const Value* value = Top();
            if (good_ && value->kind != Kind::kDict) return NotTensors("an object has attributes");
            break;
        }
        case 0x93: {  // STACK_GLOBAL
            const Value *name = Pop(), *module = Pop();
            good_ = good_ && name->text.size() <= kMostNameBytes &&
                    module->text.size() <= kMostNameBytes;
            if (good_) PushGlobal(std::string(module->text), std::string(name->text));
            break;
        }
        default: return NotTensors(fmt::format("data.pkl has the opcode {:#x}", opcode));
    }
    return {};
}

// ("storage", its class, key, device, number of elements)
Status Machine::LoadStorage() {
    const Id id = PopId();
    const std::vector<Id>* items = good_ ? ItemsOf(id, 5) : nullptr;
    if (items == nullptr) return NotTensors("an object is not a storage");
    const Value &type = values_[(*items)[1]], &key = values_[(*items)[2]];
    if (key.text.size() > kMostKeyBytes) return NotTensors("a storage has a long name");
    const auto* known =
        std::ranges::find(kStorages, type.text, [](const auto& row) { return row.name; });
    if (type.kind != Kind::kGlobal || key.kind != Kind::kText || known == std::end(kStorages)) {
        return NotTensors(fmt::format("a storage is of '{}'", Shown(type.text)));
    }
    Push({.kind = Kind::kStorage, .text = std::string(key.text), .type = known->type});
    return {};
}

Status Machine::Call() {
    const Id arguments = PopId();
    const Value* function = Pop();
    if (!good_) return {};
    const std::string name = function->text;
    const std::vector<Id>* items = ItemsOf(arguments, 0);
    if (function->kind != Kind::kGlobal || items == nullptr)
        return NotTensors("an object is called");
    if (name == "collections.OrderedDict" && items->empty()) {
        Push({.kind = Kind::kDict});
        return {};
    }
    if (name == "torch._utils._rebuild_parameter" && !items->empty()) {
        stack_.push_back(items->front());
        return {};
    }
    if (name == "torch._utils._rebuild_tensor_v2" && items->size() >= 4) return Rebuild(*items);
    return NotTensors(fmt::format("it calls '{}'", Shown(name)));
}

// (storage, first element, shape, strides, ...)
Status Machine::Rebuild(const std::vector<Id>& arguments) {
    const Value &storage = values_[arguments[0]], &first = values_[arguments[1]];
    const auto shape = Ints(arguments[2]), strides = Ints(arguments[3]);
    good_ = good_ && storage.kind == Kind::kStorage && first.kind == Kind::kInt && shape &&
            strides && shape->size() == strides->size();
    if (!good_) return {};
    constexpr int64_t kMost = int64_t{1} << 40;
    int64_t step = 1;
    bool contiguous = true;
    for (size_t i = shape->size(); i > 0; --i) {
        const int64_t dim = (*shape)[i - 1];
        good_ = good_ && dim >= 0 && (dim == 0 || step <= kMost / dim);
        if (!good_) return {};
        contiguous = contiguous && (dim <= 1 || (*strides)[i - 1] == step);
        step *= std::max<int64_t>(dim, 1);
    }
    if (!contiguous) return NotTensors("a tensor's elements are not contiguous");
    Push({.kind = Kind::kTensor,
          .number = first.number,
          .text = std::string(storage.text),
          .type = storage.type,
          .shape = *shape});
    return {};
}

}  // namespace

Result<std::vector<SafeTensor>> ReadTorchFile(const WeightFile& file) {
    WEFT_ASSIGN(const auto parts, ReadParts(file));
    const auto pickle = parts.find("data.pkl");
    if (pickle == parts.end()) return Corrupt(file, "a zip file without data.pkl");
    if (pickle->second.bytes > kMostPickleBytes) {
        return Corrupt(file, "data.pkl has {} bytes", pickle->second.bytes);
    }
    if (const auto order = parts.find("byteorder"); order != parts.end()) {
        WEFT_ASSIGN(const auto word, ReadBytes(file, order->second.offset,
                                               std::min<uint64_t>(order->second.bytes, 8)));
        if (!word.empty() && word[0] == std::byte{'b'}) {
            return MakeError(ErrorCode::kUnsupported, "{}: a big-endian file. {}", file.path(),
                             kNext);
        }
    }
    WEFT_ASSIGN(const auto bytes, ReadBytes(file, pickle->second.offset, pickle->second.bytes));
    WEFT_ASSIGN(auto read, Machine(file, bytes).Run());
    std::vector<SafeTensor> tensors;
    for (auto& [name, value] : read) {
        const auto data = parts.find("data/" + value.text);
        if (data == parts.end()) return Corrupt(file, "tensor '{}' has no data", Shown(name));
        uint64_t elements = 1;
        for (const int64_t dim : value.shape) elements *= static_cast<uint64_t>(dim);
        const uint64_t size = SafeTypeBytes(value.type), held = data->second.bytes / size;
        const auto first = static_cast<uint64_t>(value.number);
        if (first > held || elements > held - first) {
            return Corrupt(file, "tensor '{}' has {} elements at {}, but its storage has {}",
                           Shown(name), elements, value.number, held);
        }
        tensors.push_back({.name = std::move(name),
                           .type = value.type,
                           .shape = std::move(value.shape),
                           .shard = 0,
                           .offset = data->second.offset + first * size,
                           .bytes = elements * size});
    }
    return tensors;
}

}  // namespace weft::model_files::hf
