// Fuzzes snapshots of hosts, and with them every parser of every check.
//
// Input: a snapshot, as a tar file or as text ("==> PATH <==" above each file). All checks run on
// it, alone and across two hosts, one with the snapshot and one with what would be saved of it;
// what is found is printed as a report.
// Seeds: fuzz/corpus/doctor.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "doctor/check.h"
#include "doctor/report.h"
#include "doctor/save.h"
#include "doctor/snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace weft::doctor;
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    auto files = ParseSnapshot(bytes, "fuzzed");
    if (!files.ok()) return 0;
    Names names;
    SnapshotFiles saved = SavedFiles(*files, names);
    std::vector<std::unique_ptr<HostView>> hosts;
    hosts.push_back(MakeSnapshotView(std::move(*files), "a"));
    hosts.push_back(MakeSnapshotView(std::move(saved), "b"));
    const auto findings = RunChecks(hosts, {});
    WEFT_CHECK(findings.ok());
    WEFT_CHECK(findings->empty() || !Report(*findings, {.verbose = true}).empty());
    return 0;
}
