// Snapshots that may be shown to strangers: an allow-list. saved_sources.h has a row for each
// source that a check reads; a source without a row is not saved, and of a saved one only the
// fields of its row, as known words, numbers and pseudonyms (saved_words.h, pseudonyms.h). The
// checks find in a saved snapshot the same as on the host.
#pragma once

#include <string>
#include <vector>

#include "doctor/pseudonyms.h"
#include "doctor/snapshot.h"

namespace weft::doctor {

// One row, to tell the user what is in a snapshot.
struct SavedSource {
    std::string path;  // "sys/class/net/<if>/mtu"
    const char* kept;  // "numbers and known words"
    size_t files = 0;
};

// raw: what was read, by the paths of a snapshot (host_view.h). names gives the pseudonyms.
SnapshotFiles SavedFiles(const SnapshotFiles& raw, Pseudonyms& names,
                         std::vector<SavedSource>* sources = nullptr);

}  // namespace weft::doctor
