// Compares names of kernel releases, as in /lib/modules, and finds installed ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"

namespace weft::doctor {

// "6.14.0-37-generic" -> 6, 14, 0, 37. Stops at the first part that does not begin with a digit
// ("generic", "arch1"), or after eight numbers.
std::vector<int64_t> NumbersOfRelease(std::string_view release);
// The part after the numbers: "-generic", ".fc43.x86_64". A newer kernel replaces older ones of the
// same flavor.
std::string FlavourOfRelease(std::string_view release);
// Releases of the installed kernels, from /lib/modules or, if that was not read, from the output of
// package managers and `ls /boot`. Empty: none of these was read.
std::vector<std::string> InstalledKernels(HostView& view);
// The setting that makes the boot loader start the running kernel although a newer one is
// installed, such as "GRUB_DEFAULT in /etc/default/grub"; "": no such setting was found.
std::string WhatKeepsKernel(HostView& view, const std::string& running);

}  // namespace weft::doctor
