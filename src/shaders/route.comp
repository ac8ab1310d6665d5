// The experts of each row (route.glsl). A workgroup per row.
#version 460
#include "head.glsl"
#include "glu.glsl"
const bool kRoutes = true;
layout(constant_id = 1) const bool kSparse = false;
layout(constant_id = 2) const uint kMostExperts = 1024;  // of a row
layout(constant_id = 3) const bool kSoftplus = false;
layout(constant_id = 4) const bool kByToken = false;
#include "route.glsl"

layout(push_constant, scalar) uniform Args {
    uint64_t logits;
    Routing routing;
    float jitter;
} a;

void main() {
    routing = a.routing;
    route_jitter = a.jitter;
    RouteRow(a.logits, gl_WorkGroupID.y);
}
