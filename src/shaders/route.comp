// The experts of each row (route.glsl). A workgroup per row.
#version 460
#include "head.glsl"
const bool kRoutes = true;
#include "route.glsl"

layout(push_constant, scalar) uniform Args {
    uint64_t logits;
    Routing routing;
} a;

void main() {
    routing = a.routing;
    RouteRow(a.logits, gl_WorkGroupID.y);
}
