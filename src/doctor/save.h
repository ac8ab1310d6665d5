// Makes snapshots that can be shown to strangers. An allow-list (saved_sources.h) has a row for
// each source that a check reads; other sources are not saved. Only the fields in a source's row
// are saved, as known words, numbers and pseudonyms (saved_words.h, pseudonyms.h). Checks give the
// same findings on a saved snapshot as on the host.
#pragma once

#include <string>
#include <vector>

#include "doctor/pseudonyms.h"
#include "doctor/snapshot.h"

namespace weft::doctor {

// A row of the list that tells the user what a snapshot contains.
struct SavedSource {
    std::string path;  // "sys/class/net/<if>/mtu"
    const char* kept;  // "numbers and known words"
    size_t files = 0;
};

// Returns the snapshot to save. raw: the content of sources by their paths (host_view.h). names:
// supplies pseudonyms. sources: receives the list for the user.
SnapshotFiles SavedFiles(const SnapshotFiles& raw, Pseudonyms& names,
                         std::vector<SavedSource>* sources = nullptr);

}  // namespace weft::doctor
