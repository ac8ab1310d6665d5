#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace weft {
namespace {

bool IsOpen(int fd) {
    return ::fcntl(fd, F_GETFD) >= 0;
}

Fd Open() {
    return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(Fd, ClosesItsDescriptorOnce) {
    int number = -1;
    {
        const Fd fd = Open();
        ASSERT_TRUE(fd.valid());
        number = fd.get();
        EXPECT_TRUE(IsOpen(number));
    }
    EXPECT_FALSE(IsOpen(number));
    Fd fd = Open();
    fd.Reset();
    EXPECT_FALSE(fd.valid());
    const Fd next = Open();  // has the number that `fd` had
    fd.Reset();
    EXPECT_TRUE(IsOpen(next.get()));
}

TEST(Fd, MovesItsDescriptor) {
    Fd first = Open(), second = Open();
    const int one = first.get(), two = second.get();
    second = std::move(first);
    EXPECT_EQ(second.get(), one);
    EXPECT_FALSE(IsOpen(two));
    EXPECT_TRUE(IsOpen(one));
    Fd& same = second;
    second = std::move(same);
    EXPECT_EQ(second.get(), one);
    const Fd third(std::move(second));
    EXPECT_EQ(third.get(), one);
    EXPECT_TRUE(IsOpen(one));
}

}  // namespace
}  // namespace weft
