#include "model_files/gguf.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "model_files/nvfp4.h"

namespace weft::model_files {
namespace {

constexpr uint64_t kMostParts = 1000;

// The parts of "dir/name-00002-of-00005.gguf".
struct SplitName {
    std::string prefix;  // "dir/name"
    uint64_t number;     // from 1
    uint64_t count;
};

std::string PartPath(const SplitName& split, uint64_t number) {
    return fmt::format("{}-{:05}-of-{:05}.gguf", split.prefix, number, split.count);
}

std::optional<SplitName> ParseSplitName(const std::string& path) {
    constexpr size_t kTail = std::char_traits<char>::length("-00001-of-00003.gguf");
    if (path.size() < kTail) return std::nullopt;
    SplitName split{path.substr(0, path.size() - kTail), 0, 0};
    for (size_t i = 0; i < 5; ++i) {
        const char number = path[split.prefix.size() + 1 + i];
        const char count = path[split.prefix.size() + 10 + i];
        if (number < '0' || number > '9' || count < '0' || count > '9') return std::nullopt;
        split.number = split.number * 10 + static_cast<uint64_t>(number - '0');
        split.count = split.count * 10 + static_cast<uint64_t>(count - '0');
    }
    if (PartPath(split, split.number) != path) return std::nullopt;
    return split;
}

// "blk.3.ffn_up.weight" becomes "blk.*.ffn_up.weight"; other names are unchanged.
std::string InAnyLayer(const std::string& name) {
    constexpr std::string_view kBegin = "blk.";
    const size_t end = name.find('.', kBegin.size());
    if (!name.starts_with(kBegin) || end == name.npos) return name;
    return std::string(kBegin) + "*" + name.substr(end);
}

struct OpenedPart {
    std::vector<std::byte> bytes;  // of the header, into which its entries point
    WeightFile file;
    GgufHeader header;
};

// No header is longer; the most that is requested of a partial file.
constexpr uint64_t kMostHeaderBytes = 256 << 20;

// The size of the first read. The header of a part without metadata is shorter than this.
constexpr uint64_t kFirstBytes = 1 << 20;

// The header is read, not mapped: a file that is cut meanwhile would end the process by SIGBUS.
Result<OpenedPart> OpenPart(const std::string& path, ReadPlan* plan) {
    WEFT_ASSIGN(WeightFile file, WeightFile::Open(path, plan));
    const uint64_t size = file.size_bytes(), there = file.Prefix();
    if (size == 0) return MakeError(ErrorCode::kCorrupt, "{}: the file is empty", path);
    std::vector<std::byte> bytes;
    for (uint64_t most = kFirstBytes;; most *= 4) {
        const uint64_t read = bytes.size();
        bytes.resize(std::min({there, most, kMostHeaderBytes}));
        WEFT_TRY(file.ReadAt(read, std::span(bytes).subspan(read)));
        auto header = ParseGguf(bytes, size, path);
        // With more bytes it can be decided whether the header is wrong or just longer.
        if (!header.ok() && bytes.size() < std::min(there, kMostHeaderBytes)) continue;
        if (there < size && there < kMostHeaderBytes) {
            const uint64_t more = std::min(size, std::max<uint64_t>(there * 2, 1 << 20));
            WEFT_TRY(file.Need({0, header.ok() ? std::min(header->data_offset, size) : more}));
        }
        if (!header.ok()) return header.error();
        std::vector<std::byte> own(bytes.begin(),
                                   bytes.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(
                                                       header->data_offset, bytes.size())));
        WEFT_ASSIGN(GgufHeader parsed, ParseGguf(own, size, path));
        return OpenedPart{std::move(own), std::move(file), std::move(parsed)};
    }
}

// Checks that the split keys of `part` match its file name.
Status CheckSplitKeys(const OpenedPart& part, uint64_t number, uint64_t count) {
    const Metadata meta(part.file.path(), part.header.entries);
    const auto check = [&](const char* key, uint64_t expected) -> Status {
        WEFT_ASSIGN(const uint64_t found, meta.U64(key));
        if (found == expected) return {};
        return MakeError(ErrorCode::kCorrupt,
                         "{}: metadata key '{}' is {}, but this is part {} of {}: expected {}. "
                         "Are the files' names mixed up?",
                         part.file.path(), key, found, number, count, expected);
    };
    WEFT_TRY(check("split.no", number - 1));
    return check("split.count", count);
}

Result<std::vector<OpenedPart>> OpenParts(const std::string& path, ReadPlan* plan) {
    std::vector<OpenedPart> parts;
    WEFT_ASSIGN(OpenedPart opened, OpenPart(path, plan));
    const Metadata meta(path, opened.header.entries);
    WEFT_ASSIGN(const uint64_t count, meta.U64Or("split.count", 1));
    if (count <= 1) {
        parts.push_back(std::move(opened));
        return parts;
    }
    const std::optional<SplitName> split = ParseSplitName(path);
    const bool named = split && split->count == count && count <= kMostParts &&
                       split->number >= 1 && split->number <= count;
    if (!named) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: metadata key 'split.count' is {}, but the file's name does not end "
                         "in -NNNNN-of-{:05}.gguf (at most {} parts)",
                         path, count, count, kMostParts);
    }
    for (uint64_t number = 1; number <= count; ++number) {
        if (number == split->number) continue;
        Result<OpenedPart> part = OpenPart(PartPath(*split, number), plan);
        if (!part.ok() && part.error().code == ErrorCode::kNotFound) {
            return MakeError(ErrorCode::kNotFound, "{} (part {} of {} of {})", part.error().message,
                             number, count, path);
        }
        if (!part.ok()) return part.error();
        WEFT_TRY(CheckSplitKeys(*part, number, count));
        parts.push_back(std::move(part).value());
    }
    WEFT_TRY(CheckSplitKeys(opened, split->number, count));
    parts.insert(parts.begin() + static_cast<ptrdiff_t>(split->number - 1), std::move(opened));
    return parts;
}

// Merges the tensors of all parts into one table; each has the index of its part.
Result<std::vector<TensorInfo>> MergeTensors(std::vector<OpenedPart>& parts) {
    std::vector<TensorInfo> tensors;
    for (size_t p = 0; p < parts.size(); ++p) {
        for (TensorInfo& tensor : parts[p].header.tensors) {
            tensor.part = static_cast<int>(p);
            tensors.push_back(std::move(tensor));
        }
    }
    if (parts.size() == 1) return tensors;
    const std::string& path = parts[0].file.path();
    const Metadata meta(path, parts[0].header.entries);
    WEFT_ASSIGN(const uint64_t expected, meta.U64Or("split.tensors.count", tensors.size()));
    if (expected != tensors.size()) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: metadata key 'split.tensors.count' is {}, but the {} parts have {} "
                         "tensors",
                         path, expected, parts.size(), tensors.size());
    }
    std::unordered_map<std::string_view, int> seen;
    for (const TensorInfo& tensor : tensors) {
        const auto [at, fresh] = seen.emplace(tensor.name, tensor.part);
        if (!fresh) {
            return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' is in part {} and in part {}",
                             path, tensor.name, at->second + 1, tensor.part + 1);
        }
    }
    return tensors;
}

}  // namespace

Result<Gguf> Gguf::Open(const std::string& path, ReadPlan* plan) {
    WEFT_ASSIGN(std::vector<OpenedPart> opened, OpenParts(path, plan));
    WEFT_ASSIGN(std::vector<TensorInfo> tensors, MergeTensors(opened));
    const GgufHeader& first = opened[0].header;
    // A file with only a vocabulary is valid, too; code that needs weights reports their absence.
    const auto of_tokenizer = [](const MetaEntry& entry) {
        return entry.key.starts_with("tokenizer.");
    };
    if (tensors.empty() && std::ranges::none_of(first.entries, of_tokenizer)) {
        return MakeError(ErrorCode::kCorrupt, "{}: the file holds neither tensors nor a tokenizer",
                         path);
    }
    std::vector<MetaEntry> entries = first.entries;
    const uint32_t version = first.version;
    const uint64_t alignment = first.alignment;
    std::vector<Part> parts;
    for (OpenedPart& part : opened) {
        parts.push_back({std::move(part.bytes), std::move(part.file)});
    }
    Gguf gguf(path, version, alignment, std::move(parts), std::move(entries), std::move(tensors));
    WEFT_TRY(gguf.FoldScales());
    return gguf;
}

Gguf::Gguf(std::string path, uint32_t version, uint64_t alignment, std::vector<Part> parts,
           std::vector<MetaEntry> entries, std::vector<TensorInfo> tensors)
    : path_(std::move(path)),
      version_(version),
      alignment_(alignment),
      parts_(std::move(parts)),
      meta_(path_, std::move(entries)),
      tensors_(std::move(tensors)) {
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

// llama.cpp's converter omits a scale of 1, and its quantizer writes no scales. If a scale is
// missing in some layers only, the file is corrupt.
Status Gguf::FoldScales() {
    std::unordered_set<std::string> folded, scaled;
    std::vector<const TensorInfo*> without;
    for (TensorInfo& tensor : tensors_) {
        if (tensor.dtype != DType::kNVFP4) continue;
        tensor.bytes = static_cast<uint64_t>(tensor.rows * RowBytes(tensor.dtype, tensor.cols));
        const std::string base = tensor.name.substr(0, tensor.name.rfind('.'));
        if (index_.contains(base + ".input_scale")) folded.insert(base + ".input_scale");
        const TensorInfo* scale = FindTensor(base + ".scale");
        if (scale == nullptr) {
            without.push_back(&tensor);
            continue;
        }
        const int64_t count = scale->rows * scale->cols;
        if (scale->dtype != DType::kF32 || (count != 1 && count != tensor.dims[2])) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: tensor '{}' has {} elements of type {}; expected 1 or {} of type "
                             "F32",
                             path_, scale->name, count, Info(scale->dtype).name, tensor.dims[2]);
        }
        scales_.emplace(tensor.name, *scale);
        folded.insert(scale->name);
        scaled.insert(InAnyLayer(tensor.name));
    }
    for (const TensorInfo* tensor : without) {
        if (!scaled.contains(InAnyLayer(tensor->name))) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "{}: NVFP4 tensor '{}' has no '{}.scale', but the same tensor of other "
                         "layers has one. Was the file converted completely?",
                         path_, tensor->name, tensor->name.substr(0, tensor->name.rfind('.')));
    }
    if (folded.empty()) return {};
    std::erase_if(tensors_, [&](const TensorInfo& one) { return folded.contains(one.name); });
    index_.clear();
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
    return {};
}

std::vector<const WeightFile*> Gguf::Files() const {
    std::vector<const WeightFile*> files;
    for (const Part& part : parts_) files.push_back(&part.file);
    return files;
}

const TensorInfo* Gguf::FindTensor(std::string_view tensor) const {
    const auto found = index_.find(tensor);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status Gguf::ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                      int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                      uint64_t* bytes_read) const {
    CheckSlice(tensor, row_begin, row_count, col_begin, col_count, out.size());
    const Slice slice{row_begin, row_count, col_begin, col_count};
    if (tensor.dtype == DType::kNVFP4) return ReadNvRows(tensor, slice, out, bytes_read);
    WEFT_TRY(ReadFile(tensor, slice, out));
    if (bytes_read != nullptr) *bytes_read += out.size();
    return {};
}

// Reads the rows as the file stores them.
Status Gguf::ReadFile(const TensorInfo& tensor, const Slice& slice,
                      std::span<std::byte> out) const {
    const WeightFile& file = parts_[static_cast<size_t>(tensor.part)].file;
    const auto bytes = [&](int64_t cols) {
        return static_cast<uint64_t>(GgufRowBytes(tensor.dtype, cols));
    };
    const uint64_t row_bytes = bytes(tensor.cols), slice_bytes = bytes(slice.cols);
    const uint64_t begin = tensor.offset + static_cast<uint64_t>(slice.row) * row_bytes;
    const Status read = slice_bytes == row_bytes ? file.ReadAt(begin, out)
                                                 : file.ReadStrided(begin + bytes(slice.col),
                                                                    row_bytes, slice_bytes, out);
    if (!read.ok() && read.error().code == ErrorCode::kNotFound) {
        return MakeError(ErrorCode::kNotFound, "tensor '{}': {}", tensor.name,
                         read.error().message);
    }
    return read;
}

// One scale for all rows, or one per expert.
Result<std::vector<float>> Gguf::ScalesOf(const TensorInfo& tensor) const {
    const auto found = scales_.find(tensor.name);
    if (found == scales_.end()) return std::vector<float>{1.0f};
    const TensorInfo& scale = found->second;
    std::vector<float> values(static_cast<size_t>(scale.rows * scale.cols));
    WEFT_TRY(
        ReadFile(scale, {0, scale.rows, 0, scale.cols}, std::as_writable_bytes(std::span(values))));
    for (const float value : values) {
        if (std::isfinite(value)) continue;
        return MakeError(ErrorCode::kCorrupt, "{}: tensor '{}' holds {}", path_, scale.name, value);
    }
    return values;
}

Status Gguf::ReadNvRows(const TensorInfo& tensor, const Slice& slice, std::span<std::byte> out,
                        uint64_t* bytes_read) const {
    if (out.empty()) return {};
    WEFT_ASSIGN(const std::vector<float> scales, ScalesOf(tensor));
    const int64_t rows_each = tensor.rows / static_cast<int64_t>(scales.size());
    constexpr int64_t kMostBytes = 1 << 20;
    const int64_t most = std::max<int64_t>(1, kMostBytes / slice.cols);
    std::vector<std::byte> read;
    for (int64_t done = 0; done < slice.rows; done += most) {
        const int64_t row = slice.row + done, rows = std::min(most, slice.rows - done);
        read.resize(static_cast<size_t>(rows * GgufRowBytes(tensor.dtype, slice.cols)));
        WEFT_TRY(ReadFile(tensor, {row, rows, slice.col, slice.cols}, read));
        if (bytes_read != nullptr) *bytes_read += read.size();
        const std::byte* block = read.data();
        for (int64_t i = 0; i < rows * slice.cols / kNvBlock; ++i) {
            const int64_t own = row + i / (slice.cols / kNvBlock);
            const Status put =
                PutNvBlockOfGguf(block, scales[static_cast<size_t>(own / rows_each)], out.data());
            if (!put.ok()) {
                return MakeError(put.error().code, "{}: tensor '{}': row {}: {}", path_,
                                 tensor.name, own, put.error().message);
            }
            block += kGgufNvBlockBytes;
            out = out.subspan(kNvBlockBytes);
        }
    }
    return {};
}

Result<std::string> Gguf::Fingerprint() const {
    FingerprintMaker maker;
    for (const Part& part : parts_) {
        maker.Add(part.header);
        maker.Add(part.file.size_bytes());
    }
    return maker.Finish();
}

}  // namespace weft::model_files
