// What is already there of a file that is being downloaded: a set of byte ranges, and the note
// beside the partial file that keeps it between runs.
//
// A partial file is also what `weft pull --shard` leaves: the ranges that one rank reads, for good.
// Its readers ask HeldRanges which they are.
//
// The partial file is sparse and of full size; the note says which bytes of it are real, of which
// content, and what the server called it (ETag). A note that fits nothing any more is worth
// nothing: the download starts anew. Both are named so that huggingface_hub takes them for nobody's
// but ours: it would take a file of full size named HASH.incomplete for a whole one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/http.h"

namespace weft::hub {

// What the name of a partial file ends in, and that of its note.
inline constexpr const char* kPartSuffix = ".weft.incomplete";
inline constexpr const char* kNoteSuffix = ".json";

// Disjoint ranges in ascending order, none empty, none touching.
class RangeSet {
  public:
    // gap: ranges no further apart than this become one, with what is between them.
    explicit RangeSet(uint64_t gap = 0) : gap_(gap) {}
    void Add(ByteRange range);
    uint64_t bytes() const { return bytes_; }
    bool Contains(ByteRange range) const;
    // The end of what is there without a gap from byte 0.
    uint64_t Prefix() const;
    // What is missing of [0, size), or of `range`.
    std::vector<ByteRange> Missing(uint64_t size) const { return MissingOf({0, size}); }
    std::vector<ByteRange> MissingOf(ByteRange range) const;
    const std::vector<ByteRange>& ranges() const { return ranges_; }

  private:
    std::vector<ByteRange> ranges_;
    uint64_t bytes_ = 0, gap_;
};

struct PartNote {
    std::string hash;  // of the whole content, as the Hub names it
    uint64_t size = 0;
    std::string etag;  // of the bytes, as their server sent it; may be empty
    RangeSet done;
};

inline constexpr uint64_t kMostNoteBytes = 8 << 20;

std::string PrintNote(const PartNote& note);
// kCorrupt where it is no note, or one whose ranges do not lie within the size.
Result<PartNote> ParseNote(std::string_view text);

// Which bytes of the file at `path` are real, where it is (or leads to) a partial file; nothing for
// any other file. kCorrupt: a partial file whose note is missing or of another size.
Result<std::optional<RangeSet>> HeldRanges(const std::string& path);

}  // namespace weft::hub
