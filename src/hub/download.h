// Downloads one file over several connections into a partial file, and can resume after any
// interruption.
//
// The missing bytes are divided into pieces, which `config.connections` threads fetch in order. The
// calling thread hashes the contiguous beginning, and writes the note (part.h) four times a second:
// after a kill, a lost connection or Ctrl-C, the next call fetches only missing bytes.
//
// The Hub's hash identifies the file's content. If it differs from the note, the download restarts.
// If the hash of the finished file is wrong and part of the file came from an earlier run, the
// download restarts once. If the server ignores Range, one connection reads from byte 0.
//
// The hash of a shard (`wanted`) can't be checked. The file's size, the content's hash on the Hub
// and the ETag, which must not change, identify it. If the ETag differs from the note, the download
// restarts; if it keeps changing, the download fails. The note is written after the bytes are on
// disk, and stays with the partial file. Once the ranges cover the whole file, its hash is checked.
//
// After a lost connection, a stall, status 429 or 5xx, requests are retried with growing delays and
// not before Retry-After. The download fails when a connection fails ten times in a row without a
// byte, or when less than 1 KiB/s arrived within config.timeout_ms.
//
// While the calling thread hashes the file or writes it to the disk, it updates the partial file's
// modification time, by which other programs see that it works (cache.h: BlobLock).
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
    uint64_t fetched_bytes = 0;  // transferred over the network
    uint64_t resumed_bytes = 0;  // stored by an earlier run
    bool is_whole = false;       // complete and verified
};

// Called at most ten times a second, by the calling thread: bytes of this file that exist, and
// bytes transferred over the network.
using OnProgress = std::function<void(uint64_t there_bytes, uint64_t fetched_bytes)>;

// Downloads `file` from `url` to `part_path` and verifies it. The caller holds the file's lock, and
// renames a whole file (CompletePart), which also removes the note at part_path + ".json". wanted:
// only these ranges of the file; null: all of it. Errors: kCancelled (keeps partial file and note),
// kCorrupt (wrong hash or size; removes both), kTimeout, kDenied, kNotFound, kIo; kUnsupported if
// the server does not support ranges and `wanted` is given.
Result<Downloaded> Download(const Config& config, const std::string& url, const RepoFile& file,
                            const std::string& part_path, const OnProgress& on_progress,
                            const RangeSet* wanted = nullptr);

}  // namespace weft::hub
