// Makes snapshots that can be shown to strangers, by an allow-list. saved_sources.h has a row for
// each source that a check reads; other sources are not saved. A row keeps only the listed fields,
// as known words, numbers and pseudonyms (saved_words.h, pseudonyms.h). Checks give the same
// findings on a saved snapshot as on the host.
#pragma once

#include <string>
#include <vector>

#include "doctor/pseudonyms.h"
#include "doctor/snapshot.h"

namespace weft::doctor {

// One row, to tell the user the contents of a snapshot.
struct SavedSource {
    std::string path;  // "sys/class/net/<if>/mtu"
    const char* kept;  // "numbers and known words"
    size_t files = 0;
};

// raw: sources by their paths in a snapshot (host_view.h). names: supplies pseudonyms.
SnapshotFiles SavedFiles(const SnapshotFiles& raw, Pseudonyms& names,
                         std::vector<SavedSource>* sources = nullptr);

}  // namespace weft::doctor
