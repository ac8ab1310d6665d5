// What a saved snapshot holds: for every source that a check reads, the fields that the checks use,
// parsed and written again in the source's own form. What is not in the table is not saved, and a
// field that does not have the form of its kind (a number, one of a few words) is left out. So no
// secret has to be known in order to stay away: comments, environments, whole units, log lines
// of other programs, serial numbers and hardware addresses have no place to stand in. Names and
// addresses become pseudonyms (names.h). The checks find the same in what was saved.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/names.h"
#include "doctor/snapshot.h"

namespace weft::doctor {

// One kind of source in a snapshot, to tell the user what is in it.
struct SavedSource {
    std::string path;  // "sys/class/net/*/mtu"
    const char* kept;  // "a number"
    size_t files = 0;
};

// raw: what was read, by the paths of a snapshot (host_view.h). names gives the pseudonyms.
SnapshotFiles SavedFiles(const SnapshotFiles& raw, Names& names,
                         std::vector<SavedSource>* sources = nullptr);

}  // namespace weft::doctor
