#!/usr/bin/sh
# The guest's first process: mounts, modules, the script. On the second serial port: `up` before it
# all, the script's exit status after it.
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
echo up > /dev/ttyS1
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
chmod 1777 /tmp /dev/shm
exec < /dev/null > /dev/ttyS0 2>&1
stty -onlcr < /dev/ttyS0

while read -r module; do insmod "/modules/$module" || echo "guest: $module does not load"; done \
    < /modules/order
hostname guest
ip link set lo up
ulimit -l unlimited
ulimit -c 0

cat > /run/main <<'MAIN'
. /lib/guest.sh
set --
while read -r argument; do set -- "$@" "$argument"; done < /arguments
. /script
MAIN
/usr/bin/sh /run/main
echo $? > /dev/ttyS1
poweroff -f
