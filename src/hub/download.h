// One file, over several connections, into a partial file that survives anything.
//
// What is missing is cut into pieces, taken in order by `config.connections` threads. The calling
// thread meanwhile hashes what has come without a gap, and writes the note (part.h) four times a
// second: after a kill, a cut or Ctrl-C the next call asks for what is missing and no more.
//
// The content is pinned by its hash, and its bytes by their ETag: another hash or ETag than that of
// the note starts anew; an ETag that changes while we read starts anew once, then is an error. A
// hash that is wrong in the end starts anew once where part of the file was from an earlier run.
// A server that ignores Range is read by one connection, from byte 0.
//
// Of a shard (`wanted`) no hash can be checked: there are the file's size, the hash by which the
// Hub calls the content, and the ETag, which may not change. The note is written after the bytes
// are on the disk, and stays with the partial file. Once ranges add up to the whole file it is
// checked.
//
// Cuts, stalls, 429 and 5xx are tried again, at growing distances and not before Retry-After; the
// end comes when a connection fails ten times in a row without a byte, or nothing worth mentioning
// (1 KiB/s) came within config.timeout_ms.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/http.h"
#include "hub/listing.h"
#include "hub/part.h"

namespace weft::hub {

struct Downloaded {
    uint64_t fetched_bytes = 0;  // came over the network
    uint64_t resumed_bytes = 0;  // were there from an earlier run
    bool is_whole = false;       // and verified
};

// Called ten times a second at most, by the calling thread: bytes of this file that are there, and
// bytes that came over the network.
using OnProgress = std::function<void(uint64_t there_bytes, uint64_t fetched_bytes)>;

// Fetches `file` from `url` to `part_path`, verified; the note is at part_path + ".json" until
// then, gone afterwards. The caller holds the lock of the file, and renames it. Errors: kCancelled
// (partial file and note stay), kCorrupt (wrong hash or size: both are removed), kTimeout, kDenied,
// kNotFound, kIo. wanted: only these ranges, within the file; null: all of it. kUnsupported where
// the server can't send ranges.
Result<Downloaded> Download(const Config& config, const std::string& url, const RepoFile& file,
                            const std::string& part_path, const OnProgress& on_progress,
                            const RangeSet* wanted = nullptr);

}  // namespace weft::hub
