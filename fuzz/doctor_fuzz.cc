// Fuzzes snapshots of hosts, and with them every parser of every check.
//
// Input: a snapshot, as a tar file or as text ("==> PATH <==" above each file). All checks run on
// it, alone and across two hosts: one with the snapshot, one with the archive made from it. The
// report of the findings must not contain terminal control characters. A marker in any file or path
// must not appear in the archive, and the archive must be readable.
// Seeds: fuzz/corpus/doctor.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "doctor/check.h"
#include "doctor/report.h"
#include "doctor/save.h"
#include "doctor/snapshot.h"
#include "doctor/text.h"

namespace {

using namespace weft::doctor;

constexpr std::string_view kMarker = "zqmarkerzq";

// The marker somewhere in every text and in every path.
SnapshotFiles WithMarkers(const SnapshotFiles& files) {
    const auto place = [](std::string_view text) {
        return std::hash<std::string_view>()(text) % (text.size() + 1);
    };
    SnapshotFiles marked;
    for (const auto& [path, text] : files) {
        std::string other = text, name = path;
        other.insert(place(text), kMarker);
        name.insert(place(path), kMarker);
        marked[path] = other;
        marked[name] = text;
    }
    return marked;
}

void CheckThatMarkersStayOut(const SnapshotFiles& files) {
    Pseudonyms names;
    for (const auto& [path, text] : SavedFiles(WithMarkers(files), names)) {
        WEFT_CHECK(!Contains(path, kMarker) && !Contains(text, kMarker));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    auto files = ParseSnapshot(bytes, "fuzzed");
    if (!files.ok()) {
        WEFT_CHECK(Printable(files.error().message) == files.error().message);
        return 0;
    }
    CheckThatMarkersStayOut(*files);
    Pseudonyms names, real(true);
    SnapshotFiles saved = SavedFiles(*files, names);
    const auto archive = WriteTar(SavedFiles(*files, real));
    WEFT_CHECK(archive.ok() && ParseSnapshot(*archive, "saved").ok());
    std::vector<std::unique_ptr<HostView>> hosts;
    hosts.push_back(MakeSnapshotView(std::move(*files), "a"));
    hosts.push_back(MakeSnapshotView(std::move(saved), "b"));
    const auto findings = RunChecks(hosts, {});
    WEFT_CHECK(findings.ok());
    const std::string report = Report(*findings, {.verbose = true});
    WEFT_CHECK(findings->empty() || !report.empty());
    for (std::string_view line : Lines(report)) WEFT_CHECK(Printable(line) == line);
    return 0;
}
