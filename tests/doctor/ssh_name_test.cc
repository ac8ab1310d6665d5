// Host names that become words of ssh's command line.
#include <gtest/gtest.h>

#include "doctor/collect.h"

namespace weft::doctor {
namespace {

TEST(DoctorCollect, NamesOfHostsAreNoFlags) {
    EXPECT_EQ(SshName("a").value(), "a");
    EXPECT_EQ(SshName("user@host-1.lan:7000").value(), "user@host-1.lan");
    for (const char* name : {"", "-oProxyCommand=x", "a b", "a;b", "a$(b)", ":7000", "a'b"}) {
        const auto refused = SshName(name);
        ASSERT_FALSE(refused.ok()) << name;
        EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    }
}

}  // namespace
}  // namespace weft::doctor
