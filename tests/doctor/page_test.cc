// docs/doctor.md is generated from the checks, and every check has an explanation.
#include <gtest/gtest.h>

#include <set>

#include "base/file.h"
#include "doctor/check.h"
#include "support/paths.h"

namespace weft::doctor {
namespace {

TEST(DoctorPage, IsTheCommittedOne) {
    const Result<std::string> committed = ReadTextFile(support::TestData("/../../docs/doctor.md"));
    ASSERT_TRUE(committed.ok()) << committed.error().message;
    EXPECT_TRUE(committed->ends_with("\n" + ChecksPage()))
        << "replace the section by the output of: weft doctor --list --markdown";
}

TEST(DoctorPage, EveryCheckExplainsItself) {
    std::set<std::string> names;
    for (const Check& check : AllChecks()) {
        SCOPED_TRACE(check.name);
        EXPECT_TRUE(names.insert(check.name).second) << "twice";
        EXPECT_GE(std::string(check.what).size(), 10u);
        EXPECT_GE(std::string(check.reads).size(), 5u);
        EXPECT_GE(std::string(check.why).size(), 20u);
        // Two checks start ranks or programs, so they have no function (doctor/fabric.h, model.h).
        const std::string name = check.name;
        const int ways = (check.run != nullptr) + (check.across != nullptr);
        EXPECT_EQ(ways, name == "across-measured" || name == "model-files" ? 0 : 1);
    }
}

}  // namespace
}  // namespace weft::doctor
