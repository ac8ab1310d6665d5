#include "train/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_set>

namespace weft::train {
namespace {

using model_files::hf::Config;
using model_files::hf::Json;
using model_files::hf::SafeTensor;
using model_files::hf::Shown;

constexpr int64_t kVersion = 1;
// ("model" was a hash of samples.)
constexpr const char* kModelKey = "model_identity";
constexpr const char* kHeaderKey = "model_fingerprint";
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr size_t kMostFiles = 65'536;
constexpr size_t kMostArrays = 1 << 20;
constexpr size_t kHexDigits = 8;
constexpr size_t kAlignment = 64;  // of the data in a rank's file

std::span<const std::byte> BytesOf(std::string_view text) {
    return std::as_bytes(std::span(text));
}

Error Wrong(std::string_view where, std::string_view what) {
    return MakeError(ErrorCode::kCorrupt, "{}: {}", where, what);
}

Result<Sha256Digest> ParseDigest(const std::string& hex, std::string_view where) {
    Sha256Digest digest;
    bool good = hex.size() == 2 * digest.size();
    for (size_t i = 0; good && i < digest.size(); ++i) {
        const char* at = hex.data() + 2 * i;
        good = std::from_chars(at, at + 2, digest[i], 16).ptr == at + 2;
    }
    if (!good) return Wrong(where, "a SHA-256 is not 64 hexadecimal digits");
    return digest;
}

Result<SafeType> ParseType(const std::string& name, std::string_view where) {
    for (int i = 0; i <= static_cast<int>(SafeType::kF64); ++i) {
        const auto type = static_cast<SafeType>(i);
        if (model_files::hf::SafeTypeName(type) == name) return type;
    }
    return MakeError(ErrorCode::kCorrupt, "{}: '{}' is not a data type", where, Shown(name));
}

// Throws like get<>(), and also for fractions and numbers that are too large.
int64_t WholeAt(const Json& json, size_t place) {
    const Json& value = json.at(place);
    const bool good =
        value.is_number_integer() &&
        (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
    if (!good) throw Json::other_error::create(500, "not a whole number", nullptr);
    return value.get<int64_t>();
}

bool IsPlainName(const std::string& name) {
    return !name.empty() && name.size() <= 255 && name.front() != '.' &&
           name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

// ---- Manifest -----------------------------------------------------------------------------------

Json FileJson(const CheckpointFile& file) {
    return {{"name", file.name}, {"bytes", file.bytes}, {"header_sha256", Hex(file.header)}};
}

Json ArrayJson(const Array& array) {
    return {array.kind, array.tensor, array.rows, array.cols,
            std::string(model_files::hf::SafeTypeName(array.type))};
}

// The manifest's own digest: over the manifest without "sha256".
std::string DigestOf(Json json) {
    json.erase("sha256");
    return Hex(Sha256(BytesOf(json.dump())));
}

Result<CheckpointFile> FileOf(const Json& json, std::string_view where) {
    CheckpointFile file;
    std::string digest;
    try {
        json.at("name").get_to(file.name);
        json.at("header_sha256").get_to(digest);
        if (json.at("bytes").is_number_unsigned()) json.at("bytes").get_to(file.bytes);
    } catch (const std::exception& error) {
        return Wrong(where, "files: " + Shown(error.what()));
    }
    WEFT_ASSIGN(file.header, ParseDigest(digest, where));
    if (!IsPlainName(file.name)) {
        return MakeError(ErrorCode::kCorrupt, "{}: '{}' is not the plain name of a file", where,
                         Shown(file.name));
    }
    return file;
}

Result<Array> ArrayOfJson(const Json& json, std::string_view where) {
    Array array;
    std::string type;
    try {
        json.at(0).get_to(array.kind);
        json.at(1).get_to(array.tensor);
        array.rows = WholeAt(json, 2);
        array.cols = WholeAt(json, 3);
        json.at(4).get_to(type);
    } catch (const std::exception& error) {
        return Wrong(where, "arrays: " + Shown(error.what()));
    }
    WEFT_ASSIGN(array.type, ParseType(type, where));
    if (!IsValidArray(array)) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} of {} x {} is not a valid array", where,
                         Shown(array.Name()), array.rows, array.cols);
    }
    return array;
}

Status CheckFormat(const Json& format, const Json& version, std::string_view where) {
    if (!format.is_string() || format != kManifestFormat) {
        return Wrong(where, "does not belong to a checkpoint of weft train");
    }
    if (version.is_number_integer() && version == kVersion) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: version {} of the format; this weft reads version {}. Use the weft that "
                     "wrote it, or a newer one",
                     where, Shown(version.dump(-1, ' ', true)), kVersion);
}

// ---- A rank's header ----------------------------------------------------------------------------

std::string ChecksumText(const StoredPiece& piece) {
    std::string text;
    for (size_t i = 0; i < ChecksumCount(piece.bytes()); ++i) {
        text += fmt::format("{:08x}", i < piece.checksums.size() ? piece.checksums[i] : 0u);
    }
    return text;
}

Json PieceJson(const std::string& name, const StoredPiece& piece) {
    const TensorRegion& r = piece.region;
    return {{"name", name},
            {"array", ArrayJson(piece.array)},
            {"block", {r.row_begin, r.row_count, r.col_begin, r.col_count}},
            {"range", {r.begin, r.end}},
            {"crc32c", ChecksumText(piece)}};
}

Result<std::vector<uint32_t>> ParseChecksums(const std::string& text, uint64_t count) {
    std::vector<uint32_t> checksums;
    if (text.size() / kHexDigits != count || text.size() % kHexDigits != 0) {
        return MakeError(ErrorCode::kCorrupt, "{} digits of checksums; expected {} for each of {}",
                         text.size(), kHexDigits, count);
    }
    for (const char* at = text.data(); checksums.size() < count; at += kHexDigits) {
        uint32_t value = 0;
        if (std::from_chars(at, at + kHexDigits, value, 16).ptr != at + kHexDigits) {
            return MakeError(ErrorCode::kCorrupt, "a checksum is not {} hexadecimal digits",
                             kHexDigits);
        }
        checksums.push_back(value);
    }
    return checksums;
}

Result<StoredPiece> PieceOf(const Json& json, const SafeTensor& tensor, const std::string& where) {
    StoredPiece piece;
    std::string name, checksums;
    TensorRegion& r = piece.region;
    try {
        json.at("name").get_to(name);
        json.at("crc32c").get_to(checksums);
        WEFT_ASSIGN(piece.array, ArrayOfJson(json.at("array"), where));
        const Json &block = json.at("block"), &range = json.at("range");
        int64_t* const of_block[] = {&r.row_begin, &r.row_count, &r.col_begin, &r.col_count};
        for (size_t i = 0; i < 4; ++i) *of_block[i] = WholeAt(block, i);
        r.begin = WholeAt(range, 0);
        r.end = WholeAt(range, 1);
    } catch (const std::exception& error) {
        return Wrong(where, "pieces: " + Shown(error.what()));
    }
    if (name != tensor.name || piece.array.type != tensor.type ||
        !IsInside(piece.region, piece.array) || piece.bytes() != tensor.bytes) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: tensor '{}' is not the piece of {} that the manifest names", where,
                         Shown(tensor.name), Shown(piece.array.Name()));
    }
    piece.offset = tensor.offset;
    auto parsed = ParseChecksums(checksums, ChecksumCount(piece.bytes()));
    if (!parsed.ok()) return Wrong(where, Shown(name) + ": " + parsed.error().message);
    piece.checksums = std::move(*parsed);
    return piece;
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
    Json json = {{"format", kManifestFormat}, {"version", kVersion},
                 {"step", manifest.step},     {"sequence", manifest.sequence},
                 {kModelKey, manifest.model}, {kHeaderKey, manifest.fingerprint},
                 {"state", manifest.state},   {"files", Json::array()},
                 {"arrays", Json::array()}};
    for (const CheckpointFile& file : manifest.files) json["files"].push_back(FileJson(file));
    for (const Array& array : manifest.arrays) json["arrays"].push_back(ArrayJson(array));
    json["sha256"] = DigestOf(json);
    return json.dump(1, '\t');
}

Result<Manifest> ParseManifest(std::string_view text, std::string_view where) {
    WEFT_ASSIGN(const Config config, Config::Parse(text, where));
    const Json& json = config.json();
    WEFT_TRY(CheckFormat(json.value("format", Json()), json.value("version", Json()), where));
    WEFT_ASSIGN(const std::string digest, config.StringOr({"sha256"}, ""));
    try {
        if (digest != DigestOf(json)) {
            return Wrong(where,
                         "its text does not match its checksum: it was changed or damaged. Resume "
                         "from another checkpoint");
        }
    } catch (const std::exception& error) {  // text that is not UTF-8
        return Wrong(where, Shown(error.what()));
    }
    Manifest manifest;
    WEFT_ASSIGN(manifest.step, config.NeedInt({"step"}, 0, kMostSteps));
    WEFT_ASSIGN(manifest.sequence, config.NeedInt({"sequence"}, 0, kMostSteps));
    WEFT_ASSIGN(manifest.model, config.StringOr({kModelKey}, ""));
    WEFT_ASSIGN(manifest.fingerprint, config.StringOr({kHeaderKey}, ""));
    manifest.state = json.value("state", Json::object());
    if (!manifest.state.is_object()) return Wrong(where, "its state is not an object");
    const Json files = json.value("files", Json()), arrays = json.value("arrays", Json());
    if (!files.is_array() || files.empty() || files.size() > kMostFiles || !arrays.is_array() ||
        arrays.empty() || arrays.size() > kMostArrays) {
        return Wrong(where, "no files or no arrays, or too many of them");
    }
    std::unordered_set<std::string> names;
    for (const Json& entry : files) {
        WEFT_ASSIGN(CheckpointFile file, FileOf(entry, where));
        if (!names.insert(file.name).second) return Wrong(where, "names a file twice");
        manifest.files.push_back(std::move(file));
    }
    for (const Json& entry : arrays) {
        WEFT_ASSIGN(Array array, ArrayOfJson(entry, where));
        if (!names.insert(array.kind + '\n' + array.tensor).second) {
            return Wrong(where, "names " + Shown(array.Name()) + " twice");
        }
        manifest.arrays.push_back(std::move(array));
    }
    return manifest;
}

std::string FileText(const CheckpointFile& file) {
    return FileJson(file).dump();
}

Result<CheckpointFile> ParseFile(std::string_view text, std::string_view where) {
    WEFT_ASSIGN(const Json json, model_files::hf::ParseJson(text, where));
    return FileOf(json, where);
}

std::string RankHeader(int64_t step, std::span<const StoredPiece> pieces) {
    Json header = Json::object(), list = Json::array();
    uint64_t offset = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
        const StoredPiece& piece = pieces[i];
        const TensorRegion& r = piece.region;
        const std::string name = fmt::format("{}:{}:{}", piece.array.kind, piece.array.tensor, i);
        list.push_back(PieceJson(name, piece));
        Json shape = Json::array({r.elements()});
        if (r.elements() == r.row_count * r.col_count) {
            shape = Json::array({r.row_count, r.col_count});
        }
        header[name] = {{"dtype", std::string(model_files::hf::SafeTypeName(piece.array.type))},
                        {"shape", shape},
                        {"data_offsets", {offset, offset + piece.bytes()}}};
        offset += piece.bytes();
    }
    header["__metadata__"] = {{"format", kManifestFormat},
                              {"version", std::to_string(kVersion)},
                              {"step", std::to_string(step)},
                              {"pieces", list.dump()}};
    std::string text = header.dump();
    const uint64_t unaligned = (sizeof(uint64_t) + text.size()) % kAlignment;
    if (unaligned > 0) text.append(kAlignment - unaligned, ' ');
    std::string out(sizeof(uint64_t), '\0');
    const uint64_t length = text.size();
    std::memcpy(out.data(), &length, sizeof length);
    return out + text;
}

Status CheckRankHeader(std::span<const StoredPiece> pieces) {
    const std::string header = RankHeader(kMostSteps, pieces);
    uint64_t bytes = header.size();
    for (const StoredPiece& piece : pieces) bytes += piece.bytes();
    const auto parsed = ParseRankHeader(BytesOf(header), bytes, "its header");
    if (parsed.ok()) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "its file of a checkpoint would have {} pieces, and could not be read again: "
                     "{}. With --zero 1, --ep or more ranks, each rank saves fewer pieces",
                     pieces.size(), parsed.error().message);
}

Result<RankFile> ParseRankHeader(std::span<const std::byte> bytes, uint64_t file_bytes,
                                 std::string_view where) {
    WEFT_ASSIGN(const std::vector<SafeTensor> tensors,
                model_files::hf::ParseSafetensors(bytes, file_bytes, where));
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length,
                                length);
    WEFT_ASSIGN(const Config header, Config::Parse(text, where));
    WEFT_ASSIGN(const Config about, header.Sub({"__metadata__"}));
    WEFT_ASSIGN(const std::string format, about.StringOr({"format"}, ""));
    WEFT_ASSIGN(const std::string version, about.StringOr({"version"}, ""));
    WEFT_ASSIGN(const std::string step, about.StringOr({"step"}, ""));
    WEFT_ASSIGN(const std::string list_text, about.StringOr({"pieces"}, ""));
    int64_t number = 0;
    std::from_chars(version.data(), version.data() + version.size(), number);
    WEFT_TRY(CheckFormat(format, number, where));
    RankFile file;
    const auto parsed = std::from_chars(step.data(), step.data() + step.size(), file.step);
    if (parsed.ptr != step.data() + step.size() || file.step < 0) {
        return Wrong(where, "its step is '" + Shown(step) + "'");
    }
    WEFT_ASSIGN(const Json list, model_files::hf::ParseJson(list_text, where));
    if (!list.is_array() || list.size() != tensors.size()) {
        return Wrong(where, "does not name the piece of each tensor");
    }
    std::vector<const SafeTensor*> order;
    for (const SafeTensor& tensor : tensors) order.push_back(&tensor);
    std::ranges::sort(order, {}, [](const SafeTensor* tensor) { return tensor->offset; });
    for (size_t i = 0; i < order.size(); ++i) {
        WEFT_ASSIGN(StoredPiece piece, PieceOf(list[i], *order[i], std::string(where)));
        file.pieces.push_back(std::move(piece));
    }
    return file;
}

}  // namespace weft::train
