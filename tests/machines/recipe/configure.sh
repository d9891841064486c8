#!/bin/sh
# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Makes a machine of a root folder with all packages; run in there, after files/ was copied.

set -eu

# Debian has a group of that name.
useradd --uid 4777 --gid operator --create-home --shell /bin/bash operator
chmod 0440 /etc/sudoers.d/operator
systemctl -q enable systemd-networkd.service systemd-network-generator.service machine-ssh-keys.service srv-images.mount nfs-server.service
# A machine has the packages, as a hypervisor would, but only a scenario that binds its watchdog wants one that is armed.
systemctl -q disable watchdog.service wd_keepalive.service sbd.service sbd_remote.service
# What takes time at each boot, and does nothing for a machine of a test.
systemctl -q mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer nfs-blkmap.service \
    logrotate.timer man-db.timer getty@tty1.service systemd-pstore.service
systemctl -q set-default multi-user.target
install -d /srv/images /var/log/journal
rm -f /etc/ssh/ssh_host_*_key* /etc/resolv.conf /etc/hostname /usr/sbin/policy-rc.d
update-initramfs -c -k all >/dev/null
