// libFuzzer target: any bytes as the manifest of a training checkpoint, as a rank's entry in it,
// and as the start of a rank's file. Accepted input must be consistent, and must be the same after
// it is written and read again.
//     build-fuzz/fuzz/checkpoint_fuzz -max_total_time=60 -malloc_limit_mb=64
//     fuzz/corpus/checkpoint
#include <cstdlib>

#include "base/check.h"
#include "train/checkpoint/manifest.h"

namespace {

using namespace weft;
using namespace weft::train;

// With the checksum that it ought to have: no input would find it.
std::string Signed(std::string_view text) {
    auto json = model_files::hf::ParseJson(text, "fuzz");
    if (!json.ok() || !json->is_object()) return std::string(text);
    json->erase("sha256");
    const std::string rest = json->dump();
    (*json)["sha256"] = Hex(Sha256(std::as_bytes(std::span(rest))));
    return json->dump();
}

void CheckManifest(std::string_view text) {
    const auto manifest = ParseManifest(text, "fuzz");
    if (!manifest.ok()) {
        WEFT_CHECK(!manifest.error().message.empty());
        return;
    }
    for (const CheckpointFile& file : manifest->files) {
        WEFT_CHECK(!file.name.empty() && file.name.find('/') == file.name.npos);
    }
    for (const Array& array : manifest->arrays) WEFT_CHECK(IsSane(array));
    const auto again = ParseManifest(ManifestText(*manifest), "fuzz");
    WEFT_CHECK(again.ok() && again->files == manifest->files && again->arrays == manifest->arrays &&
               again->state == manifest->state);
}

void CheckHeader(std::span<const std::byte> bytes) {
    const auto file = ParseRankHeader(bytes, bytes.size(), "fuzz");
    if (!file.ok()) {
        WEFT_CHECK(!file.error().message.empty());
        return;
    }
    for (const StoredPiece& piece : file->pieces) {
        WEFT_CHECK(IsSane(piece.array) && IsInside(piece.region, piece.array));
        WEFT_CHECK(piece.offset <= bytes.size() && piece.bytes() <= bytes.size() - piece.offset);
        WEFT_CHECK(piece.checksums.size() == ChecksumCount(piece.bytes()));
        (void)Cover({piece.region}, piece.array);
    }
    std::string again = RankHeader(file->step, file->pieces);
    uint64_t size = again.size();
    for (const StoredPiece& piece : file->pieces) size += piece.bytes();
    const auto same = ParseRankHeader(std::as_bytes(std::span(again)), size, "fuzz");
    WEFT_CHECK(same.ok() && same->pieces.size() == file->pieces.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    CheckHeader(bytes);
    CheckManifest(text);
    CheckManifest(Signed(text));
    const auto file = ParseFile(text, "fuzz");
    if (file.ok()) WEFT_CHECK(file->name.find('/') == file->name.npos);
    return 0;
}
