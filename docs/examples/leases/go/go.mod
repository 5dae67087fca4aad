module leasehold.example/leases

go 1.19
