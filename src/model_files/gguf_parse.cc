// ParseGguf: parses the header of a GGUF file from untrusted bytes.
#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/file_kind.h"
#include "model_files/gguf.h"
#include "model_files/nvfp4.h"
#include "model_files/ollama_keys.h"

namespace weft::model_files {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMostAlignment = 1ull << 30;
constexpr uint64_t kMostKeyBytes = 65535;
constexpr uint64_t kMostNameBytes = 64;
constexpr int kMostArrayDepth = 4;
// The smallest entry (an empty key, a type, a byte) and tensor info (a name, a dim, type, offset).
constexpr uint64_t kLeastEntryBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Names of tensor types that exist but that Weft does not read, for errors.
struct OtherType {
    uint32_t number;
    std::string_view name;
};
constexpr OtherType kOtherTypes[] = {
    {4, "Q4_2"},        {5, "Q4_3"},        {9, "Q8_1"},      {15, "Q8_K"},
    {24, "I8"},         {25, "I16"},        {27, "I64"},      {28, "F64"},
    {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4 (or BitNet's I2_S)"},
    {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {41, "Q1_0"},
};
// Types of ik_llama.cpp.
constexpr OtherType kIkTypes[] = {
    {97, "Q8_0_X4"}, {98, "Q8_1_X4"}, {99, "Q8_2_X4"}, {133, "Q6_0"},   {134, "IQ1_BN"},
    {135, "IQ2_BN"}, {136, "Q8_K64"}, {137, "IQ2_K"},  {138, "IQ3_K"},  {139, "IQ4_K"},
    {140, "IQ5_K"},  {141, "IQ6_K"},  {144, "IQ4_KS"}, {145, "IQ2_KS"}, {146, "IQ4_KSS"},
    {152, "IQ5_KS"}, {153, "IQ2_KT"}, {154, "IQ3_KT"}, {155, "IQ4_KT"}, {156, "IQ3_KS"},
    {157, "IQ2_KL"}, {158, "IQ1_KT"},
};
// Interleaved types: 200 + the number of a type below, so 202 is Q4_0 (2), 339 IQ4_K.
constexpr uint32_t kFirstInterleaved = 200, kLastInterleaved = 399;

std::string SupportedTypes() {
    std::string names;
    for (const DTypeInfo& info : kFileDTypes) {
        if (!names.empty()) names += ", ";
        names += info.name;
    }
    return names + ", NVFP4";
}

// Returns "" if no known program writes the type.
std::string OtherTypeName(uint32_t number) {
    const auto* other = std::ranges::find(kOtherTypes, number, &OtherType::number);
    if (other != std::end(kOtherTypes)) return std::string(other->name);
    const auto* ik = std::ranges::find(kIkTypes, number, &OtherType::number);
    if (ik != std::end(kIkTypes)) return fmt::format("{} of ik_llama.cpp", ik->name);
    if (number < kFirstInterleaved || number > kLastInterleaved) return "";
    return fmt::format("{}, one of ik_llama.cpp's with interleaved rows (_R4, _R8)", number);
}

// Text from the file, for messages: printable and not too long.
std::string ShownKey(std::string_view text) {
    std::string out;
    for (char c : text.substr(0, 80)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
    return text.size() > 80 ? out + "..." : out;
}

class Parser {
  public:
    Parser(std::span<const std::byte> bytes, uint64_t file_bytes, std::string_view where)
        : bytes_(bytes), file_bytes_(file_bytes), where_(where) {}

    Result<GgufHeader> Run();

  private:
    uint64_t left() const { return bytes_.size() - at_; }

    // An error about a part of this file: "FILE: tensor 'x': ...".
    template <typename... Args>
    Error Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
        return MakeError(ErrorCode::kCorrupt, "{}: {}", where_,
                         fmt::format(format, std::forward<Args>(args)...));
    }

    template <typename T>
    Result<T> Take(std::string_view subject, std::string_view field) {
        if (left() < sizeof(T)) return CutShort(subject, field, sizeof(T));
        T value;
        std::memcpy(&value, bytes_.data() + at_, sizeof value);
        at_ += sizeof value;
        return value;
    }
    Error CutShort(std::string_view subject, std::string_view field, uint64_t needed) const {
        return Corrupt(
            "{}: {} needs {} bytes at byte {}, but only {} bytes follow. Is the download complete?",
            subject, field, needed, at_, left());
    }
    Result<std::string_view> TakeString(std::string_view subject, std::string_view field,
                                        uint64_t most_bytes);
    Status Prelude(GgufHeader& header);
    Result<MetaEntry> Entry(uint64_t number);
    Status SkipArray(std::string_view subject, MetaType element, uint64_t count, int depth);
    Status FindAlignment(GgufHeader& header) const;
    Result<TensorInfo> Tensor(uint64_t number);
    Status TensorShape(TensorInfo& tensor, std::string_view subject);
    Result<DType> TensorType(std::string_view subject);
    Status CheckPlacement(GgufHeader& header) const;

    std::span<const std::byte> bytes_;
    uint64_t file_bytes_;
    std::string_view where_;
    uint64_t at_ = 0;
    uint64_t entry_count_ = 0;
    uint64_t tensor_count_ = 0;
};

Result<GgufHeader> Parser::Run() {
    GgufHeader header{};
    WEFT_TRY(Prelude(header));
    std::unordered_set<std::string_view> keys;
    for (uint64_t i = 0; i < entry_count_; ++i) {
        WEFT_ASSIGN(MetaEntry entry, Entry(i));
        if (!keys.insert(entry.key).second) {
            return Corrupt("metadata key '{}' occurs twice", ShownKey(entry.key));
        }
        header.entries.push_back(entry);
    }
    TranslateOllamaKeys(header.entries);
    WEFT_TRY(FindAlignment(header));
    for (uint64_t i = 0; i < tensor_count_; ++i) {
        WEFT_ASSIGN(TensorInfo tensor, Tensor(i));
        header.tensors.push_back(std::move(tensor));
    }
    std::unordered_set<std::string_view> names;
    for (const TensorInfo& tensor : header.tensors) {
        if (!names.insert(tensor.name).second) {
            return Corrupt("tensor '{}' occurs twice", ShownKey(tensor.name));
        }
    }
    // at_ is at most the size of memory, so rounding it up cannot overflow.
    header.data_offset = (at_ + header.alignment - 1) / header.alignment * header.alignment;
    WEFT_TRY(CheckPlacement(header));
    return header;
}

Status Parser::Prelude(GgufHeader& header) {
    const auto* text = reinterpret_cast<const char*>(bytes_.data());
    const std::string_view begin(text, std::min<uint64_t>(bytes_.size(), kKindBytes));
    const std::string kind = begin.starts_with("GGUF") ? "" : WrongKind(begin);
    if (!kind.empty()) return Corrupt("not a GGUF file: it is {}", kind);
    WEFT_ASSIGN(const uint32_t magic, Take<uint32_t>("header", "magic"));
    if (magic != kMagic) {
        return Corrupt("not a GGUF file: it begins with bytes {:08x}; expected {:08x} (\"GGUF\")",
                       magic, kMagic);
    }
    WEFT_ASSIGN(header.version, Take<uint32_t>("header", "version"));
    if (header.version != 2 && header.version != 3) {
        const bool swapped = header.version != 0 && (header.version & 0xffffu) == 0;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: header: version {}{}; versions 2 and 3 are supported, little-endian",
                         where_, swapped ? header.version >> 24 : header.version,
                         swapped ? " in big-endian byte order" : "");
    }
    WEFT_ASSIGN(tensor_count_, Take<uint64_t>("header", "tensor_count"));
    WEFT_ASSIGN(entry_count_, Take<uint64_t>("header", "metadata_kv_count"));
    if (tensor_count_ > left() / kLeastTensorBytes) {
        return Corrupt("header: tensor_count is {}, but only {} bytes follow", tensor_count_,
                       left());
    }
    if (entry_count_ > left() / kLeastEntryBytes) {
        return Corrupt("header: metadata_kv_count is {}, but only {} bytes follow", entry_count_,
                       left());
    }
    return {};
}

Result<std::string_view> Parser::TakeString(std::string_view subject, std::string_view field,
                                            uint64_t most_bytes) {
    WEFT_ASSIGN(const uint64_t length, Take<uint64_t>(subject, field));
    if (length > left()) return CutShort(subject, field, length);
    if (length > most_bytes) {
        return Corrupt("{}: {} is {} bytes long; the format allows {}", subject, field, length,
                       most_bytes);
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return text;
}

Result<MetaEntry> Parser::Entry(uint64_t number) {
    const std::string nth = fmt::format("metadata entry {} of {}", number + 1, entry_count_);
    MetaEntry entry{};
    WEFT_ASSIGN(entry.key, TakeString(nth, "key", kMostKeyBytes));
    if (entry.key.empty()) return Corrupt("{}: the key is empty", nth);
    const std::string subject = fmt::format("metadata key '{}'", ShownKey(entry.key));
    const auto take_type = [&](std::string_view field) -> Result<MetaType> {
        WEFT_ASSIGN(const uint32_t type, Take<uint32_t>(subject, field));
        if (type < kMetaTypeCount) return static_cast<MetaType>(type);
        return Corrupt("{}: {} {} is not one of the format's {} types", subject, field, type,
                       kMetaTypeCount);
    };
    WEFT_ASSIGN(entry.type, take_type("value type"));
    entry.element_type = entry.type;
    entry.count = 1;
    uint64_t begin = at_;
    if (entry.type == MetaType::kArray) {
        WEFT_ASSIGN(entry.element_type, take_type("array element type"));
        WEFT_ASSIGN(entry.count, Take<uint64_t>(subject, "array length"));
        begin = at_;
        WEFT_TRY(SkipArray(subject, entry.element_type, entry.count, 1));
    } else if (entry.type == MetaType::kString) {
        WEFT_TRY(TakeString(subject, "string", left()));
    } else {
        const uint64_t size = MetaTypeBytes(entry.type);
        if (size > left()) return CutShort(subject, "value", size);
        at_ += size;
    }
    entry.bytes = bytes_.subspan(begin, at_ - begin);
    return entry;
}

// Skips the elements of an array, checking every length inside it.
Status Parser::SkipArray(std::string_view subject, MetaType element, uint64_t count, int depth) {
    const uint64_t size = MetaTypeBytes(element);
    const uint64_t least = size > 0 ? size : (element == MetaType::kString ? 8 : 12);
    if (count > left() / least) {
        return Corrupt("{}: an array of {} x {} does not fit in the remaining {} bytes", subject,
                       count, MetaTypeName(element), left());
    }
    if (size > 0) {
        at_ += count * size;
        return {};
    }
    if (element == MetaType::kString) {
        for (uint64_t i = 0; i < count; ++i) WEFT_TRY(TakeString(subject, "string", left()));
        return {};
    }
    if (depth == kMostArrayDepth) {
        return Corrupt("{}: arrays nested deeper than {}", subject, kMostArrayDepth);
    }
    for (uint64_t i = 0; i < count; ++i) {
        WEFT_ASSIGN(const uint32_t type, Take<uint32_t>(subject, "inner element type"));
        if (type >= kMetaTypeCount) return Corrupt("{}: inner element type {}", subject, type);
        WEFT_ASSIGN(const uint64_t inner, Take<uint64_t>(subject, "inner array length"));
        WEFT_TRY(SkipArray(subject, static_cast<MetaType>(type), inner, depth + 1));
    }
    return {};
}

Status Parser::FindAlignment(GgufHeader& header) const {
    const Metadata meta(std::string(where_), header.entries);
    WEFT_ASSIGN(header.alignment, meta.U64Or("general.alignment", kDefaultAlignment));
    if (!std::has_single_bit(header.alignment) || header.alignment > kMostAlignment) {
        return Corrupt("metadata key 'general.alignment' is {}; expected a power of two up to {}",
                       header.alignment, kMostAlignment);
    }
    return {};
}

Result<TensorInfo> Parser::Tensor(uint64_t number) {
    const std::string nth = fmt::format("tensor {} of {}", number + 1, tensor_count_);
    WEFT_ASSIGN(const std::string_view name, TakeString(nth, "name", kMostNameBytes));
    if (name.empty()) return Corrupt("{}: the name is empty", nth);
    const std::string subject = fmt::format("tensor '{}'", ShownKey(name));
    TensorInfo tensor{};
    tensor.name = TranslateOllamaTensor(name);
    WEFT_TRY(TensorShape(tensor, subject));
    WEFT_ASSIGN(tensor.offset, Take<uint64_t>(subject, "offset"));
    return tensor;
}

// Reads dims and type, and derives rows, cols and bytes.
Status Parser::TensorShape(TensorInfo& tensor, std::string_view subject) {
    WEFT_ASSIGN(const uint32_t dim_count, Take<uint32_t>(subject, "n_dims"));
    if (dim_count < 1 || dim_count > tensor.dims.size()) {
        return Corrupt("{}: n_dims is {}; expected 1 to {}", subject, dim_count,
                       tensor.dims.size());
    }
    tensor.dim_count = static_cast<int>(dim_count);
    tensor.dims.fill(1);
    uint64_t elements = 1;
    for (uint32_t d = 0; d < dim_count; ++d) {
        WEFT_ASSIGN(const uint64_t dim, Take<uint64_t>(subject, "dims"));
        if (dim == 0) return Corrupt("{}: dims[{}] is 0", subject, d);
        // 2^56 elements of at most 4 bytes cannot overflow later computations.
        if (dim > (1ull << 56) / elements) {
            return Corrupt("{}: dims[{}] is {}: the product of dims is too large", subject, d, dim);
        }
        elements *= dim;
        tensor.dims[d] = static_cast<int64_t>(dim);
    }
    WEFT_ASSIGN(tensor.dtype, TensorType(subject));
    const DTypeInfo& info = Info(tensor.dtype);
    tensor.cols = tensor.dims[0];
    tensor.rows = static_cast<int64_t>(elements) / tensor.cols;
    if (tensor.cols % info.block_elements != 0) {
        return Corrupt("{}: dims[0] is {}; expected a multiple of {}, the elements of a {} block",
                       subject, tensor.cols, info.block_elements, info.name);
    }
    tensor.bytes = static_cast<uint64_t>(tensor.rows) *
                   static_cast<uint64_t>(GgufRowBytes(tensor.dtype, tensor.cols));
    return {};
}

Result<DType> Parser::TensorType(std::string_view subject) {
    WEFT_ASSIGN(const uint32_t number, Take<uint32_t>(subject, "type"));
    if (const auto dtype = DTypeOfGguf(number)) return *dtype;
    if (number == kGgufNvfp4) return DType::kNVFP4;
    const std::string other = OtherTypeName(number);
    if (other.empty()) {
        return Corrupt("{}: type {} does not exist; supported: {}", subject, number,
                       SupportedTypes());
    }
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {} is of type {}, which is not supported. Get a file of another type "
                     "(Q4_K_M, Q8_0), or quantize the model again; supported: {}",
                     where_, subject, other, SupportedTypes());
}

// Makes offsets absolute. Checks that tensors are aligned, inside the file and do not overlap.
Status Parser::CheckPlacement(GgufHeader& header) const {
    const uint64_t room = file_bytes_ > header.data_offset ? file_bytes_ - header.data_offset : 0;
    std::vector<const TensorInfo*> order;
    order.reserve(header.tensors.size());
    for (TensorInfo& tensor : header.tensors) {
        if (tensor.offset % header.alignment != 0) {
            return Corrupt("tensor '{}': offset {} is not a multiple of the alignment {}",
                           ShownKey(tensor.name), tensor.offset, header.alignment);
        }
        if (tensor.offset > room || tensor.bytes > room - tensor.offset) {
            return Corrupt(
                "tensor '{}': {} bytes at offset {} of the data, but the file has {} bytes of "
                "data. Is the download complete?",
                ShownKey(tensor.name), tensor.bytes, tensor.offset, room);
        }
        tensor.offset += header.data_offset;
        order.push_back(&tensor);
    }
    std::ranges::sort(order, {}, &TensorInfo::offset);
    for (size_t i = 1; i < order.size(); ++i) {
        if (order[i]->offset < order[i - 1]->offset + order[i - 1]->bytes) {
            return Corrupt("tensor '{}': offset {} lies inside tensor '{}'",
                           ShownKey(order[i]->name), order[i]->offset - header.data_offset,
                           ShownKey(order[i - 1]->name));
        }
    }
    return {};
}

}  // namespace

Result<GgufHeader> ParseGguf(std::span<const std::byte> bytes, uint64_t file_bytes,
                             std::string_view where) {
    WEFT_CHECK(file_bytes >= bytes.size());
    return Parser(bytes, file_bytes, where).Run();
}

}  // namespace weft::model_files
