// libFuzzer target: any bytes as an answer of the Hub (a listing, a commit, an index of shards,
// configurations of a data set, a Link header), as the note of a partial file, and as a user's
// word. Accepted paths stay in their folder, accepted ranges lie within the size, and a note is the
// same after it is printed and parsed.
//     build-fuzz/fuzz/hub_fuzz -max_total_time=60 -malloc_limit_mb=256 fuzz/corpus/hub
#include <cstdlib>

#include "hub/choose.h"
#include "hub/choose_data.h"
#include "hub/listing.h"
#include "hub/part.h"
#include "hub/spec.h"

namespace {

using namespace weft::hub;

void CheckPath(const std::string& path) {
    if (path.empty() || path[0] == '/' || path == ".." || path.starts_with("../")) std::abort();
    if (path.find("/../") != path.npos || path.ends_with("/..")) std::abort();
    if (path.find('\0') != path.npos) std::abort();
}

void CheckNote(std::string_view text) {
    const auto note = ParseNote(text);
    if (!note.ok()) return;
    uint64_t at = 0, bytes = 0;
    for (const ByteRange& range : note->done.ranges()) {
        if (range.begin >= range.end || range.end > note->size) std::abort();
        if (at > 0 && range.begin <= at) std::abort();
        at = range.end;
        bytes += range.end - range.begin;
    }
    if (bytes != note->done.bytes()) std::abort();
    for (const ByteRange& gap : note->done.Missing(note->size)) bytes += gap.end - gap.begin;
    if (bytes != note->size) std::abort();
    const std::string printed = PrintNote(*note);
    const auto again = ParseNote(printed);
    if (!again.ok() || PrintNote(*again) != printed) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::vector<RepoFile> files;
    if (ParseTreePage(text, "fuzz", files).ok()) {
        for (const RepoFile& file : files) {
            CheckPath(file.path);
            if (file.hash.size() != (file.large ? 64 : 40)) std::abort();
        }
        for (const char* word : {"o/n", "o/n:Q4_0", "o/n:x.gguf"}) {
            const auto choice = Choose(files, *ParseSpec(word));
            if (choice.ok() && choice->files.empty()) std::abort();
        }
    }
    std::vector<RepoFile> listed(2);
    listed[0].path = "a/train.jsonl";
    listed[1].path = "data/train-00000-of-00001.parquet";
    for (const char* word : {"hf:datasets/o/n", "hf:datasets/o/n:a/test"}) {
        const auto chosen = ChooseData(listed, *ParseSpec(word), text);
        if (chosen.ok() && chosen->empty()) std::abort();
    }
    const auto commit = ParseCommit(text, "fuzz");
    if (commit.ok() && !IsCommit(*commit)) std::abort();
    const auto shards = ParseShardIndex(text, "fuzz");
    if (shards.ok()) {
        for (const std::string& shard : *shards) CheckPath(shard);
    }
    if (NextPage(text).size() > size) std::abort();
    CheckNote(text);
    const auto spec = ParseSpec(text);
    if (spec.ok()) {
        CheckPath(spec->revision);
        if (!spec->what.empty()) CheckPath(spec->what);
        CheckPath(spec->split);
        if (spec->owner.find('/') != std::string::npos || spec->name.starts_with('.')) std::abort();
    }
    return 0;
}
